"""Execute a network that TensorRT's parser made from an ONNX file, layer by layer, in torch on the CPU.

Only the parsed network is used, not the ONNX file, so a difference from ONNX Runtime is a difference between the two
parsers. Every shape and type that the network declares is compared with the computed value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from bcos_sdk.backends.tensorrt import engine_source
from support import walking_windows  # noqa: F401 - fills the table of rules
from support.walking_layers import RULES, TORCH_TYPES


@dataclass(frozen=True)
class Parsed:
    """A network, with the objects that must live as long: the parser owns the weights."""

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
        """Each layer with its kind ('Convolution' for IConvolutionLayer), in topological order.

        The parser puts some constants after the layer that uses them.
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
            assert len(late) < len(waiting), f"'{late[0][1].name}' reads a tensor that no layer outputs"
            waiting = late
        return order


def parse(graph: Path, *, for_engine: bool = False, channels: str | None = None) -> Parsed:
    """Parse the graph with TensorRT into a strongly typed network; with `for_engine`, what engines are built from."""
    trt = _tensorrt()
    builder = trt.Builder(_logger())
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, _logger())
    contents = graph.read_bytes()
    if not parser.parse(engine_source(contents, channels) if for_engine else contents, str(graph)):
        problems = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise AssertionError(f"TensorRT does not parse {graph.name}: {problems}")
    return Parsed(network, parser, builder)


def execute(parsed: Parsed, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs. An unknown layer, or an undeclared shape or type, is an `AssertionError`."""
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
    """The inputs of a layer; None for an input that is not connected."""
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
    assert tensor.name not in values, f"{source} outputs a second tensor called {tensor.name}"
    values[tensor.name] = value


def _last_uses(parsed: Parsed) -> dict[int, list[str]]:
    """For each layer, the tensors that no later layer reads. They are freed, because full-size networks need it."""
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
    """Assign the subclass of a layer. The bindings return the base class, which lacks the attributes of the layer."""
    kind = _kinds().get(layer.type.name.replace("_", ""), layer.type.name)
    layer.__class__ = getattr(_tensorrt(), f"I{kind}Layer", type(layer))
    return kind, layer


@functools.cache
def _tensorrt() -> Any:
    return import_module("tensorrt_rtx")


@functools.cache
def _logger() -> Any:
    """One logger for all, because TensorRT keeps the first that it gets."""
    trt = _tensorrt()
    return trt.Logger(trt.Logger.ERROR)


@functools.cache
def _kinds() -> dict[str, str]:
    """'MATRIXMULTIPLY' → 'MatrixMultiply', the spelling in the names of the layer classes."""
    kinds = [name[1:-5] for name in dir(_tensorrt()) if name.startswith("I") and name.endswith("Layer")]
    return {kind.upper(): kind for kind in kinds}
