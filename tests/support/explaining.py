"""W(x) of any module by autograd: an oracle that shares no code with the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def explain(network: nn.Module, x: Tensor, classes: list[int]) -> tuple[Tensor, Tensor]:
    """Logits, and for image n the row of W(x) that belongs to classes[n]."""
    x = x.detach().clone().requires_grad_()
    with explanation_mode(network):
        logits = network(x)
        picked = logits[torch.arange(len(x)), classes].sum()
        (weights,) = torch.autograd.grad(picked, x)
    return logits.detach(), weights


@contextmanager
def explanation_mode(network: nn.Module) -> Iterator[None]:
    """Switch on the explanation mode of networks of the reference package. Our networks have none."""
    with ExitStack() as stack:
        if hasattr(network, "explanation_mode"):
            stack.enter_context(network.explanation_mode())  # type: ignore[operator]
        else:
            for module in network.modules():
                if hasattr(module, "set_explanation_mode"):
                    _switch(module, stack)
        yield


def _switch(module: Any, stack: ExitStack) -> None:
    module.set_explanation_mode(True)
    stack.callback(module.set_explanation_mode, False)


def relative_error(value: Tensor, truth: Tensor) -> float:
    """‖value − truth‖ / ‖truth‖."""
    assert value.shape == truth.shape
    value, truth = value.detach(), truth.detach()
    return float((value - truth).norm() / truth.norm())


def random_image(batch: int, size: int, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random encoded images [batch, 6, size, size]."""
    rgb = torch.rand(batch, 3, size, size, dtype=dtype)
    return torch.cat([rgb, 1 - rgb], dim=1)
