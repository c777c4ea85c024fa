"""Let a module compute in one precision, and with gradients, whatever it switches on inside.

The precision of a graph is chosen at export. So `torch.autocast` does nothing, and fp16 or bfloat16 inside a module is
the precision of the module: a cast does nothing, and weights in fp16 are numbers like others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from bcos_sdk.errors import CaptureError

__all__ = ["in_full_precision"]

_LOW = (torch.float16, torch.bfloat16)
_CASTS = (Tensor.half, Tensor.bfloat16)


@contextmanager
def in_full_precision() -> Iterator[None]:
    """Ignore autocast and lower precisions. `inference_mode` is `no_grad`, and gradients of one's own are refused."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.autocast, "__enter__", lambda self: self))
        stack.enter_context(patch.object(torch.autocast, "__exit__", _leave))
        stack.enter_context(patch.object(torch.inference_mode, "__enter__", _enter_without_gradient))
        stack.enter_context(patch.object(torch.inference_mode, "__exit__", _leave_without_gradient))
        stack.enter_context(patch.object(torch.autograd.Function, "apply", classmethod(_refuse_own_gradient)))
        stack.enter_context(_OnePrecision())
        yield


class _OnePrecision(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _CASTS:
            cast = args[0]
            return cast if cast.is_floating_point() and cast.dtype not in _LOW else cast.to(torch.get_default_dtype())
        return func(*tree_map(_widened, args), **tree_map(_widened, kwargs or {}))


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value in _LOW:
        return torch.get_default_dtype()
    if isinstance(value, Tensor) and value.dtype in _LOW:
        return value.to(torch.get_default_dtype())
    return value


def _leave(*_arguments: Any) -> None:
    return None


def _enter_without_gradient(self: Any) -> None:
    self.instead = torch.no_grad()
    self.instead.__enter__()


def _leave_without_gradient(self: Any, *_arguments: Any) -> None:
    self.instead.__exit__(None, None, None)


_APPLY = torch.autograd.Function.__dict__["apply"].__func__


def _refuse_own_gradient(function: Any, *args: Any, **kwargs: Any) -> Any:
    if function.__module__.startswith("torch."):  # such as those of torch.compile
        return _APPLY(function, *args, **kwargs)
    raise CaptureError(
        f"the module calls {function.__name__}, a torch.autograd.Function with a gradient of its own, which cannot be "
        "captured",
        hint="Write its forward pass with operators of torch, and detach what is to be frozen.",
    )
