"""How a module is run: its logits are chosen among its results, and it computes in one precision.

While it is captured, three things are added that torch.export does not see by itself. A value that is computed under
`no_grad` has no gradient, so it is frozen: it gets a `detach`. Dropout in eval mode returns its input itself, so that
an in-place operator behind it changes the input; in the captured graph it would return a new tensor. torch.export
refuses a branch on the value of a tensor; if the value depends on parameters and constants only, as in
`if (std == 0).any()`, the branch is the same for every image and is taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.capture._explanation_mode import explanation_mode
from bcos_sdk.exporters.capture._full_precision import in_full_precision
from bcos_sdk.exporters.capture._outputs import logits_of, result_of

__all__ = ["map_shape", "run_module", "traced"]

_DROPOUTS = frozenset(
    {
        *("dropout", "dropout1d", "dropout2d", "dropout3d"),
        *("feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
    }
)
_READS = frozenset({"__bool__", "__float__", "__index__", "__int__", "equal", "allclose", "item", "tolist"})
"""Functions whose result is a number or a list, not a tensor."""


class Watching(Protocol):
    """Collects outputs of layers while a module runs."""

    def watching(self, module: nn.Module) -> AbstractContextManager[None]: ...

    @property
    def in_order(self) -> tuple[Tensor, ...]: ...


def run_module(module: nn.Module, images: Tensor, output: str | None = None) -> Tensor:
    """The logits [batch, classes] of a module. `output` names them if the module returns several tensors."""
    with in_full_precision():
        return logits_of(module(images), output, len(images))


def map_shape(module: nn.Module, image: Tensor, output: str | None = None) -> tuple[int, int, int] | None:
    """Classes, height and width of the map that the module returns for one image; None if it returns no map."""
    with in_full_precision(), torch.no_grad(), explanation_mode(module):
        result = result_of(module(image), output)
    if result.ndim != 4:
        return None
    _, classes, height, width = result.shape
    return classes, height, width


@contextmanager
def traced(module: nn.Module, output: str | None, taps: Watching | None = None) -> Iterator[None]:
    """Let the module's forward pass run under `_Tracing`, and return its logits, while it is captured.

    With `taps` it returns a tuple: the logits, then the outputs of the layers that the taps name.
    """
    forward = module.forward
    values = dict(_named_tensors(module))

    @wraps(forward)  # torch.export reads the signature
    def forward_under_tracing(*args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        # torch.export has put tensors without values into the place of the module's own.
        known = _Constants((tensor, values[name]) for name, tensor in _named_tensors(module) if name in values)
        with _Tracing(known), in_full_precision():
            if taps is None:
                return logits_of(forward(*args, **kwargs), output, 1)
            with taps.watching(module):
                logits = logits_of(forward(*args, **kwargs), output, 1)
            return (logits, *taps.in_order)

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


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))


class _Constants:
    """The values of tensors that do not depend on the image. A value is computed when it is read, not before."""

    def __init__(self, values: Iterable[tuple[Tensor, Tensor]]) -> None:
        self._values: dict[int, Tensor] = {id(tensor): value for tensor, value in values}
        self._recipes: dict[int, Callable[[], Any]] = {}
        self._kept: list[Tensor] = []

    def cover(self, operands: Any) -> bool:
        """Whether every tensor among the operands is known."""
        tensors = (id(one) for one in tree_leaves(operands) if isinstance(one, Tensor))
        return all(one in self._values or one in self._recipes for one in tensors)

    def evaluate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function of known tensors."""
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return self._call(func, args, kwargs)

    def note(self, result: Any, func: Any, args: Any, kwargs: Any) -> None:
        """Remember how the result is computed, if all operands are known."""
        if (changed := _changed_operand(func, args, kwargs)) is not None:
            if self.cover(changed):
                self._values, self._recipes = {}, {}  # its views have changed too
        elif not self.cover((args, kwargs)) or _is_random(func):
            return
        elif isinstance(result, Tensor):
            self._add(result, lambda: self._call(func, args, kwargs))
        elif isinstance(result, (tuple, list)):
            for index, one in enumerate(result):
                if isinstance(one, Tensor):
                    self._add(one, partial(self._part, index, func, args, kwargs))

    def _add(self, result: Tensor, recipe: Callable[[], Any]) -> None:
        self._kept.append(result)  # so that no other tensor gets its id
        self._recipes.setdefault(id(result), recipe)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map(self._value, (args, kwargs))
        return func(*args, **kwargs)

    def _part(self, index: int, func: Any, args: Any, kwargs: Any) -> Any:
        return self._call(func, args, kwargs)[index]

    def _value(self, operand: Any) -> Any:
        if not isinstance(operand, Tensor):
            return operand
        if id(operand) not in self._values:
            self._values[id(operand)] = self._recipes[id(operand)]()
        return self._values[id(operand)]


def _is_random(func: Any) -> bool:
    return any(
        word in getattr(func, "__name__", "") for word in ("rand", "normal", "bernoulli", "multinomial", "empty")
    )


def _changed_operand(func: Any, args: Any, kwargs: Any) -> Any:
    """The operand that the function changes in place, if there is one."""
    name = getattr(func, "__name__", "")
    in_place = name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))
    return args[0] if in_place and args else kwargs.get("out")


class _Tracing(TorchFunctionMode):
    """Detach what is computed while gradients are disabled, skip dropout in eval mode, and read known constants."""

    def __init__(self, known: _Constants) -> None:
        super().__init__()
        self._known = known

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch._C._set_grad_enabled:
            with torch._C.DisableTorchFunction():  # otherwise the change would become a node of the graph
                return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name.removesuffix("_") in _DROPOUTS:
            return _input_of_dropout(name, *args, **kwargs)
        if name in _READS and self._known.cover((args, kwargs)):
            return self._known.evaluate(func, args, kwargs)
        result = func(*args, **kwargs)
        if not torch.is_grad_enabled():
            result = tree_map(_detached, result)
        self._known.note(result, func, args, kwargs)
        return result


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
