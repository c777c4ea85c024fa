"""A graph as TensorRT's parser understood it, executed layer by layer in torch on the CPU.

Nothing is taken from the ONNX file but by way of the parsed network, so that a difference to ONNX Runtime is a
difference between the two parsers. Every shape and type that the network declares is held against what was computed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from support import walking_windows  # noqa: F401 - fills the table of rules
from support.walking_layers import RULES, TORCH_TYPES


@dataclass(frozen=True)
class Parsed:
    """A network with all that must live as long as it does: weights stay in the parser's hands."""

    network: Any
    parser: Any
    builder: Any

    @property
    def inputs(self) -> list[Any]:
        return [self.network.get_input(index) for index in range(self.network.num_inputs)]

    @property
    def outputs(self) -> list[Any]:
        return [self.network.get_output(index) for index in range(self.network.num_outputs)]

    @functools.cached_property
    def layers(self) -> list[tuple[str, Any]]:
        """Each layer with its kind, 'Convolution' for IConvolutionLayer, after all layers that it reads.

        The parser's own order is almost that: some constants come only after the layer that takes them.
        """
        known = {tensor.name for tensor in self.inputs}
        waiting = [_as_its_own_class(self.network.get_layer(index)) for index in range(self.network.num_layers)]
        order: list[tuple[str, Any]] = []
        while waiting:
            late = []
            for kind, layer in waiting:
                if all(tensor is None or tensor.name in known for tensor in inputs_of(layer)):
                    order.append((kind, layer))
                    known |= {tensor.name for tensor in outputs_of(layer)}
                else:
                    late.append((kind, layer))
            assert len(late) < len(waiting), f"'{late[0][1].name}' reads what no layer gives"
            waiting = late
        return order


def parse(graph: Path) -> Parsed:
    """The graph in TensorRT's own terms, strongly typed, as engines are built from it."""
    trt = _tensorrt()
    builder = trt.Builder(_logger())
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, _logger())
    if not parser.parse_from_file(str(graph)):
        problems = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise AssertionError(f"TensorRT does not parse {graph.name}: {problems}")
    return Parsed(network, parser, builder)


def execute(parsed: Parsed, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The network's outputs; an `AssertionError` where a layer is unknown or gives what it does not declare."""
    values: dict[str, Tensor] = {}
    for tensor in parsed.inputs:
        _keep(values, tensor, feed[tensor.name], "the input")
    last_use = _last_uses(parsed)
    for place, (kind, layer) in enumerate(parsed.layers):
        if kind not in RULES:
            raise AssertionError(f"no rule executes a layer of type {kind}: '{layer.name}'")
        operands = [None if tensor is None else values[tensor.name] for tensor in inputs_of(layer)]
        results = RULES[kind](layer, operands)
        results = (results,) if isinstance(results, Tensor) else results
        for tensor, result in zip(outputs_of(layer), results, strict=True):
            _keep(values, tensor, result, f"{kind} '{layer.name}'")
        for name in last_use.get(place, ()):
            del values[name]
    return {tensor.name: values[tensor.name] for tensor in parsed.outputs}


def inputs_of(layer: Any) -> list[Any]:
    """None stands for an input that is not connected."""
    return [layer.get_input(index) for index in range(layer.num_inputs)]


def outputs_of(layer: Any) -> list[Any]:
    return [layer.get_output(index) for index in range(layer.num_outputs)]


def _keep(values: dict[str, Tensor], tensor: Any, value: Tensor, source: str) -> None:
    declared = tuple(tensor.shape)
    fits = len(declared) == value.ndim and all(
        size in (-1, got) for size, got in zip(declared, value.shape, strict=True)
    )
    assert fits, f"{source} declares {tensor.name} as {declared}, but it is {tuple(value.shape)}"
    assert value.dtype == TORCH_TYPES[tensor.dtype.name], (
        f"{source} declares {tensor.name} as {tensor.dtype.name}, but it is {value.dtype}"
    )
    assert tensor.name not in values, f"{source} gives a second tensor called {tensor.name}"
    values[tensor.name] = value


def _last_uses(parsed: Parsed) -> dict[int, list[str]]:
    """Which tensors no layer reads after the one at this place: full-size networks do not fit into memory at once."""
    last: dict[str, int] = {}
    for place, (_, layer) in enumerate(parsed.layers):
        last |= {tensor.name: place for tensor in (*inputs_of(layer), *outputs_of(layer)) if tensor is not None}
    for tensor in parsed.outputs:
        last.pop(tensor.name, None)
    places: dict[int, list[str]] = {}
    for name, place in last.items():
        places.setdefault(place, []).append(name)
    return places


def _as_its_own_class(layer: Any) -> tuple[str, Any]:
    """The binding returns every layer as its base class; assigning the class is how its attributes are reached."""
    kind = _kinds().get(layer.type.name.replace("_", ""), layer.type.name)
    layer.__class__ = getattr(_tensorrt(), f"I{kind}Layer", type(layer))
    return kind, layer


@functools.cache
def _tensorrt() -> Any:
    return import_module("tensorrt_rtx")


@functools.cache
def _logger() -> Any:
    """One for all: TensorRT keeps to the first that it is given."""
    trt = _tensorrt()
    return trt.Logger(trt.Logger.ERROR)


@functools.cache
def _kinds() -> dict[str, str]:
    """'MATRIXMULTIPLY' → 'MatrixMultiply', as the classes of layers spell it."""
    kinds = [name[1:-5] for name in dir(_tensorrt()) if name.startswith("I") and name.endswith("Layer")]
    return {kind.upper(): kind for kind in kinds}
