"""The oracle of every export: the module itself in float64, explained by autograd, on a few probe images.

This file shares no code with the transposed pass. W(x) is compared element by element, because completeness alone is a
weak test: B-cos layers are homogeneous, so their ordinary gradients add up to the logit as well, but differ from W(x).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from bcos_sdk.exporters.capture import explanation_mode

__all__ = ["PROBES", "Truth", "consult", "probe_images"]

PROBES = ("noise", "photograph", "black", "white", "grey")


def probe_images(size: tuple[int, int]) -> Tensor:
    """[5, 6, *size]: one encoded image per name in PROBES. The photograph is `cat.jpg`, by Stefan van der Walt, CC0."""
    height, width = size
    noise = torch.rand(3, height, width, generator=torch.Generator().manual_seed(0))
    with files(__package__).joinpath("cat.jpg").open("rb") as file, Image.open(file) as picture:
        fitted = ImageOps.fit(picture.convert("RGB"), (width, height), Image.Resampling.BILINEAR)
    photograph = torch.from_numpy(np.array(fitted)).permute(2, 0, 1) / 255
    flat = [torch.full((3, height, width), level) for level in (0.0, 1.0, 0.5)]
    rgb = torch.stack([noise, photograph, *flat])
    return torch.cat([rgb, 1 - rgb], dim=1)


@dataclass(frozen=True)
class Truth:
    """Results of autograd for N images with K targets each: logits [N, C], and [N, K, …] for everything else."""

    logits: Tensor
    classes: Tensor
    weights: Tensor
    contributions: Tensor
    bias: Tensor

    def part(self, images: list[int], targets: int) -> Truth:
        """The part for these images and their first `targets` targets."""
        per_target = (self.classes, self.weights, self.contributions, self.bias)
        return Truth(self.logits[images], *(values[images, :targets] for values in per_target))


def consult(module: nn.Module, images: Tensor, targets: Tensor, dtype: torch.dtype = torch.float64) -> Truth:
    """Explain every target of every image by autograd. Targets are encoded as the contract defines."""
    module = copy.deepcopy(module).to(dtype).requires_grad_(False)
    # One image at a time: autograd's buffers for a whole batch in float64 would not fit into memory.
    with explanation_mode(module):
        answers = [_explain(module, image[None].to(dtype), aims) for image, aims in zip(images, targets, strict=True)]
    logits, classes, weights, contributions, bias = (torch.stack(parts) for parts in zip(*answers, strict=True))
    return Truth(logits.double(), classes, weights.double(), contributions.double(), bias.double())


def _explain(module: nn.Module, image: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    x = image.clone().requires_grad_()
    (logits,) = module(x)
    ranked = logits.detach().argsort(descending=True, stable=True)
    classes = torch.where(targets < 0, ranked[(-targets - 1).clamp(min=0)], targets)
    aims = torch.cat([logits, logits.mean(0, keepdim=True)])[classes]
    rows = [torch.autograd.grad(aim, x, retain_graph=k + 1 < len(aims))[0] for k, aim in enumerate(aims)]
    weights = torch.cat(rows)
    contributions = (weights * image).sum(1)
    return logits.detach(), classes, weights, contributions, aims.detach() - contributions.sum((1, 2))
