"""Switch on the explanation mode of a module, in which its dynamic weights are detached.

Three conventions exist. A network of the public `bcos` package has a method `explanation_mode()` that returns a context
manager. Its layers have `set_explanation_mode(activate)`. Layers of the first B-cos release have a method
`explanation_mode(detach)` that is a switch.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch.utils.checkpoint
from torch import nn

__all__ = ["explanation_mode"]


@contextmanager
def explanation_mode(module: nn.Module) -> Iterator[None]:
    """Switch on the explanation mode of the module and of all its layers, and off again; compute no part twice."""
    with ExitStack() as stack:
        stack.enter_context(_without_checkpoints())
        for layer in module.modules():
            _switch_on(layer, stack)
        yield


def _switch_on(layer: Any, stack: ExitStack) -> None:
    mode = getattr(layer, "explanation_mode", None)
    if callable(mode) and _is_switch(mode):
        before = getattr(layer, "detach", False)
        mode(True)
        stack.callback(mode, before if isinstance(before, bool) else False)
    elif callable(mode):
        stack.enter_context(mode())
    elif getattr(layer, "is_in_explanation_mode", None) is False:
        layer.set_explanation_mode(True)
        stack.callback(layer.set_explanation_mode, False)


def _is_switch(mode: Any) -> bool:
    """Whether the method takes a value, so that it is a switch and returns no context manager."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in kinds for parameter in inspect.signature(mode).parameters.values())


@contextmanager
def _without_checkpoints() -> Iterator[None]:
    """Run the parts of a module that gradient checkpointing would run twice only once.

    The reentrant kind of checkpointing cannot be captured, and works with `backward` only.
    """
    function = torch.utils.checkpoint.CheckpointFunction

    def run(part: Any, _preserve_rng_state: bool, *args: Any) -> Any:
        return part(*args)

    with mock.patch.object(function, "apply", run):
        yield
