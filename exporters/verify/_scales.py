"""The sizes by which errors are divided, so that an error is relative. None of them vanishes.

A result itself can vanish although its terms do not. With a stem [w, −w] / 2 the contributions w·x − w·(1 − x) of a
grey image are zero, and any rounding error would be infinitely large beside them. So the scale of the contributions is
Σ|w·x| over the channels. If all of W(x) vanishes for one image or one target, as for the mean of logits that add up to
zero, the others give the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Scales", "not_vanishing"]

_TINY = torch.finfo(torch.float32).tiny
# Where terms cancel, float32 leaves 1e-7 to 1e-6 of their size. Results below this part of the largest one are compared
# at its scale: a limit of 1e-4 then still allows these rounding errors.
_LEAST = 1e-2


@dataclass(frozen=True)
class Scales:
    """Scales for N images with K targets each: [N] for logits, [N, K] for everything else."""

    logits: Tensor
    """‖logits‖."""
    weights: Tensor
    """‖W(x)‖."""
    contributions: Tensor
    """‖Σ|w·x|‖, the sum over channels, the norm over pixels."""
    bias: Tensor
    """Σ|contribution| + |b(x)|."""
    least_residual: Tensor
    """The least scale of a residual; its usual one is `certificate_scale`."""

    @classmethod
    def of(cls, images: Tensor, logits: Tensor, weights: Tensor, contributions: Tensor, bias: Tensor) -> Scales:
        magnitudes = torch.stack([(row * image).abs().sum(1) for row, image in zip(weights, images, strict=True)])
        terms = contributions.abs().sum((2, 3)) + bias.abs()
        return cls(
            logits=not_vanishing(logits.norm(dim=1)),
            weights=not_vanishing(weights.flatten(2).norm(dim=2)),
            contributions=not_vanishing(magnitudes.flatten(2).norm(dim=2)),
            bias=not_vanishing(terms),
            least_residual=(_LEAST * terms.nan_to_num(0.0, 0.0).amax()).clamp_min(_TINY).expand(terms.shape),
        )

    def part(self, images: list[int], targets: int) -> Scales:
        """The part for these images and their first `targets` targets."""
        per_target = (self.weights, self.contributions, self.bias, self.least_residual)
        return Scales(self.logits[images], *(values[images, :targets] for values in per_target))

    @classmethod
    def joined(cls, parts: Sequence[Scales]) -> Scales:
        """The scales for the images of all parts, one after another."""
        return cls(*(torch.cat(values) for values in zip(*(vars(one).values() for one in parts), strict=True)))


def not_vanishing(sizes: Tensor) -> Tensor:
    """Sizes of a result for several images and targets, each at least a small part of the largest finite one."""
    return sizes.maximum(_LEAST * sizes.nan_to_num(0.0, 0.0).amax()).clamp_min(_TINY)
