"""What torch.export does not see by itself: `no_grad` inside a forward pass, and dropout that returns its input.

A value that is computed under `no_grad` has no gradient, so it is frozen: it gets a `detach`. Dropout in eval mode
returns its input itself, so that an in-place operator behind it changes the input. In the captured graph it would
return a new tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from bcos_sdk.errors import CaptureError

__all__ = ["traced"]

_DROPOUTS = frozenset(
    {
        *("dropout", "dropout1d", "dropout2d", "dropout3d"),
        *("feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
    }
)


@contextmanager
def traced(module: nn.Module) -> Iterator[None]:
    """Let the module's forward pass run under `_Tracing` while it is captured."""
    forward = module.forward

    @wraps(forward)  # torch.export reads the signature
    def forward_under_tracing(*args: Any, **kwargs: Any) -> Any:
        with _Tracing():
            return forward(*args, **kwargs)

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
