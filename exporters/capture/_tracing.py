"""How a module is run: its logits are chosen among its results, and it computes in one precision.

While it is captured, two things are added that torch.export does not see by itself. A value that is computed under
`no_grad` has no gradient, so it is frozen: it gets a `detach`. Dropout in eval mode returns its input itself, so that
an in-place operator behind it changes the input; in the captured graph it would return a new tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.capture._outputs import logits_of

__all__ = ["run_module", "traced"]

_DROPOUTS = frozenset(
    {
        *("dropout", "dropout1d", "dropout2d", "dropout3d"),
        *("feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
    }
)


def run_module(module: nn.Module, images: Tensor, output: str | None = None) -> Tensor:
    """The logits [batch, classes] of a module. `output` names them if the module returns several tensors."""
    with _without_autocast():
        return logits_of(module(images), output, len(images))


@contextmanager
def traced(module: nn.Module, output: str | None) -> Iterator[None]:
    """Let the module's forward pass run under `_Tracing`, and return its logits, while it is captured."""
    forward = module.forward

    @wraps(forward)  # torch.export reads the signature
    def forward_under_tracing(*args: Any, **kwargs: Any) -> Tensor:
        with _Tracing(), _without_autocast():
            return logits_of(forward(*args, **kwargs), output, 1)

    own = "forward" in vars(module)
    object.__setattr__(module, "forward", forward_under_tracing)
    try:
        with torch.enable_grad():
            yield
    finally:
        if own:
            object.__setattr__(module, "forward", forward)
        else:
            object.__delattr__(module, "forward")


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Let `torch.autocast` inside a module do nothing: the precision of a graph is chosen at export."""
    with patch.object(torch.autocast, "__enter__", lambda self: self), patch.object(torch.autocast, "__exit__", _leave):
        yield


def _leave(*_arguments: Any) -> None:
    return None


class _Tracing(TorchFunctionMode):
    """Detach what is computed while gradients are disabled, and skip dropout in eval mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch._C._set_grad_enabled:
            with torch._C.DisableTorchFunction():  # otherwise the change would become a node of the graph
                return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name.removesuffix("_") in _DROPOUTS:
            return _input_of_dropout(name, *args, **kwargs)
        result = func(*args, **kwargs)
        return result if torch.is_grad_enabled() else tree_map(_detached, result)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) and value.is_floating_point() else value


def _input_of_dropout(
    name: str,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    train: bool = False,
    training: bool = False,
    **_other: Any,
) -> Tensor:
    if (train or training) and p > 0:
        raise CaptureError(
            f"the module calls {name} with training=True in eval mode, so its logits are random",
            hint="Pass training=self.training to the dropout.",
        )
    return input
