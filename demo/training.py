"""What the trainings of the built-in models share: optimiser, schedule, moving average, checkpoints, workers.

As in the B-cos papers: input [R, G, B, 1−R, 1−G, 1−B] in [0, 1], binary cross entropy per class, logit bias −ln(C−1),
B = 2. The optimiser is AdamW with a warm-up and a cosine schedule. The result is an exponential moving average of the
weights.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save
from torch import Tensor, nn


def encode(images: Tensor) -> Tensor:
    """Encode bytes [N, H, W, 3] as the network's input: RGB and its complement, [N, 6, H, W] in [0, 1]."""
    return with_complement(images.permute(0, 3, 1, 2).float() / 255)


def with_complement(rgb: Tensor) -> Tensor:
    """[N, 3, H, W] ↦ [N, 6, H, W]: RGB and 1 − RGB."""
    return torch.cat([rgb, 1 - rgb], 1).contiguous(memory_format=torch.channels_last)


def learning_rate(progress: float, peak: float, warm_up: float) -> float:
    """Linear rise to the peak, then a cosine down to zero. `progress` is the fraction of the training."""
    if progress < warm_up:
        return peak * progress / warm_up
    return peak * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up))) / 2


def adamw(network: nn.Module, weight_decay: float, *, fused: bool = False) -> torch.optim.Optimizer:
    """AdamW that decays filters only: normalised in use, only the speed at which they turn depends on it."""
    filters = [p for p in network.parameters() if p.ndim > 1]
    scales = [p for p in network.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": filters, "weight_decay": weight_decay}, {"params": scales, "weight_decay": 0.0}], fused=fused
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def keep_norms_in_float32(network: nn.Module) -> None:
    """Cast the input of every norm to float32, because autocast may have made it bfloat16."""
    for module in network.modules():
        if hasattr(module, "running_var"):
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))


def use_moments_in_norms(network: nn.Module) -> None:
    """Let uncentred batch norms compute E[x²] − E[x]² once, in float32: without torch.compile 1.5 times as fast."""
    norms: list[Any] = [module for module in network.modules() if hasattr(module, "running_var")]
    for module in norms:
        if module.centred or module.weight is None or module.bias is not None or len(module.running_var) == 1:
            raise ValueError("use_moments_in_norms expects uncentred batch norms with a scale and without a bias")
        module.forward = MethodType(_normalise_by_moments, module)


def _normalise_by_moments(norm: Any, x: Tensor) -> Tensor:
    x = x.float()
    variance = (x.square().mean(norm.dims) - x.mean(norm.dims).square()).clamp_min(0)
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_var.lerp_(variance, norm.momentum)
    factor: Tensor = norm.weight * (variance + norm.eps).rsqrt()
    return x * factor.view(-1, 1, 1)


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, step: int, average_over: int) -> None:
    """Update the moving average of weights and running variances. Its time constant grows during the first steps."""
    share = 1 / min(average_over, 1 + step / 10)
    for old, new in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
        old.lerp_(new, share) if old.is_floating_point() else old.copy_(new)


@torch.no_grad()
def average_gradients(network: nn.Module) -> None:
    """Replace the gradients of every worker by their mean over all workers."""
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def save_weights(file: Path, network: nn.Module) -> None:
    file.write_bytes(save({name: tensor.contiguous() for name, tensor in network.state_dict().items()}))


def save_checkpoint(file: Path, states: dict[str, Any]) -> None:
    """Write the file, or leave the previous one as it is."""
    torch.save(states, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def wait_while(file: Path | None) -> float:
    """Wait while the file exists. Return the seconds waited."""
    start = time.monotonic()
    while file is not None and file.exists():
        time.sleep(1)
    return time.monotonic() - start
