"""The truth that an export is measured against: the module itself, in float64, explained by autograd.

Nothing here knows of the transposition. W(x) is compared as a tensor, because a map that merely adds up proves
little: B-cos layers are homogeneous, so their ordinary gradients add up as well, and are something else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bcos_sdk.exporters._capture import explanation_mode

__all__ = ["Truth", "consult"]


@dataclass(frozen=True)
class Truth:
    """For images [N] and targets [N, K]: logits [N, C], and the class, weights, contributions and bias per target."""

    logits: Tensor
    classes: Tensor
    weights: Tensor
    contributions: Tensor
    bias: Tensor

    def part(self, images: list[int], targets: int) -> Truth:
        """The truth about some of the images and the first few targets."""
        per_target = (self.classes, self.weights, self.contributions, self.bias)
        return Truth(self.logits[images], *(values[images, :targets] for values in per_target))


def consult(module: nn.Module, images: Tensor, targets: Tensor, dtype: torch.dtype = torch.float64) -> Truth:
    """Explain every target of every image: class c, −r for the class ranked r, or C for the mean of the logits."""
    module = copy.deepcopy(module).to(dtype).requires_grad_(False)
    # One image at a time: what autograd keeps of a whole batch in float64 would fill the memory.
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
