"""Networks with random weights that behave like trained ones: how long they take does not depend on the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bcos_sdk.models import build_model
from bcos_sdk.registry import ModelSpec

__all__ = ["calibrate", "random_network"]


def random_network(spec: ModelSpec) -> nn.Module:
    """A calibrated network of the registry, the same every time, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_model(spec)
        rgb = torch.rand(4, 3, *spec.input.size)
        calibrate(network, torch.cat([rgb, 1 - rgb], dim=1))
    return network


def calibrate(network: nn.Module, x: Tensor) -> None:
    """Random γ, layer scales that let branches speak, and running statistics that fit the data.

    Fresh weights let the signal fade through depth until errors hide in rounding, and until numbers become so small
    that a CPU takes longer for them.
    """
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("layer_scale"):
                parameter.uniform_(0.3, 1.0)
            elif parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
        momenta = {module: module.momentum for module in network.modules() if hasattr(module, "momentum")}
        for module in momenta:
            module.momentum = 1.0  # type: ignore[assignment]
        network.train()(x)
        network.eval()
        for module, momentum in momenta.items():
            module.momentum = momentum
