"""The outputs of inner layers: which modules can be named, and how their outputs become results of the program.

A layer can be named if it is called once and returns one tensor of floating-point numbers. Its output is copied where
it is returned, because a later operator may change it in place. The copy is no operator of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.errors import UnknownLayerError
from bcos_sdk.exporters.capture._explanation_mode import explanation_mode
from bcos_sdk.exporters.capture._tracing import run_module

__all__ = ["LayerOutput", "Taps", "check_layers", "find_layers"]

_MOST_AXES = 3
"""A feature map has channels, height and width."""
_MOST_LISTED = 12
_ADVICE = "`bcos-sdk layers MODEL` lists the layers that can be named."


@dataclass(frozen=True)
class LayerOutput:
    """What a module returns for one image: the shape without the batch axis, or why it cannot be named."""

    path: str
    kind: str
    """The name of the module's class."""
    shape: tuple[int, ...] = ()
    problem: str | None = None


@dataclass
class Taps:
    """The outputs of the named modules during one run of a module. `watching` fills `outputs`."""

    paths: Sequence[str]
    outputs: dict[str, Tensor] = field(default_factory=dict)

    @contextmanager
    def watching(self, module: nn.Module) -> Iterator[None]:
        """Copy what each named module returns."""
        with ExitStack() as stack:
            for path in self.paths:
                handle = module.get_submodule(path).register_forward_hook(self._hook(path))
                stack.callback(handle.remove)
            yield

    def _hook(self, path: str) -> Any:
        def keep(_module: nn.Module, _inputs: Any, result: Any) -> None:
            self.outputs[path] = result.clone()

        return keep

    @property
    def in_order(self) -> tuple[Tensor, ...]:
        return tuple(self.outputs[path] for path in self.paths)


def find_layers(module: nn.Module, image: Tensor, output: str | None = None) -> dict[str, LayerOutput]:
    """Every module that runs for the image, in the order of the computation, with its output by path."""
    paths = {path: layer for path, layer in module.named_modules(remove_duplicate=False) if path}
    calls: dict[str, list[Any]] = {}

    def watch(path: str) -> Any:
        return lambda _module, _inputs, result: calls.setdefault(path, []).append(_described(result))

    with ExitStack() as stack, explanation_mode(module), torch.no_grad():
        for path, layer in paths.items():
            stack.callback(layer.register_forward_hook(watch(path)).remove)
        run_module(module, image.clone(), output)
    return {path: _layer(path, type(paths[path]).__name__, results) for path, results in calls.items()}


def check_layers(module: nn.Module, image: Tensor, layers: Sequence[str], output: str | None = None) -> None:
    """Raise an `UnknownLayerError` if a name is not that of a layer that can be explained, or is given twice."""
    found = find_layers(module, image, output)
    for place, path in enumerate(layers):
        if path in layers[:place]:
            raise UnknownLayerError(f"layer {path!r} is named twice", source=path, hint="Name each layer once.")
        if path not in found:
            known = [one.path for one in found.values() if one.problem is None]
            outermost = ", ".join(_outermost(known)[:_MOST_LISTED])
            otherwise = f"The outermost layers are {outermost}. " if outermost else ""
            raise UnknownLayerError.among(path, known, _ADVICE, otherwise=otherwise)
        if (problem := found[path].problem) is not None:
            raise UnknownLayerError(
                f"layer {path!r} cannot be explained: {problem}",
                source=path,
                hint=_ADVICE,
            )


def _outermost(paths: Sequence[str]) -> list[str]:
    """The paths with the fewest parts, of at least two layers if there are as many: a wrapper has one child."""
    for parts in range(1, max((path.count(".") for path in paths), default=0) + 2):
        found = [path for path in paths if path.count(".") < parts]
        if len(found) >= min(2, len(paths)):
            return found
    return list(paths)


def _described(result: Any) -> Any:
    if not isinstance(result, Tensor):
        return type(result).__name__
    return tuple(result.shape) if result.is_floating_point() else f"tensor of {result.dtype}"


def _layer(path: str, kind: str, results: list[Any]) -> LayerOutput:
    if len(results) > 1:
        return LayerOutput(path, kind, problem=f"it is called {len(results)} times for one image")
    (result,) = results
    if isinstance(result, str):
        return LayerOutput(path, kind, problem=f"it returns a {result}, expected one tensor of floats")
    batch, *shape = result or (0,)
    if batch != 1 or not 1 <= len(shape) <= _MOST_AXES:
        expected = "[1, channels], [1, tokens, channels] or [1, channels, height, width]"
        return LayerOutput(path, kind, problem=f"it returns shape {list(result)} for one image, expected {expected}")
    return LayerOutput(path, kind, tuple(shape))
