"""The uses of ONNX operators that TensorRT does not build or computes differently.

ONNX Runtime, OpenVINO and TensorRT all support the operators of the contract, but TensorRT does not support every use
of them. Its own `supports_operator` is not reliable. Each entry of TENSORRT_REFUSES failed, or differed from ONNX
Runtime, with TensorRT for RTX 1.7. The parser of TensorRT may refuse further uses, and reports them when an engine is
built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import NodeProto, numpy_helper

from bcos_sdk.contract import MOST_RANKS

__all__ = ["TENSORRT_REFUSES", "Refusal", "find_refusals"]


@dataclass(frozen=True)
class Refusal:
    """An operator of a graph, its layer, and the reason why TensorRT does not support it."""

    operator: str
    layer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} in {self.layer}: {self.reason}"


class _Constants:
    """The initializers of a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}

    def has(self, node: NodeProto, place: int) -> bool:
        """Whether the node's input at that place is constant or absent."""
        return len(node.input) <= place or not node.input[place] or node.input[place] in self._tensors

    def integer(self, node: NodeProto, place: int) -> int | None:
        """The constant integer at that input, None if it is absent or computed."""
        if len(node.input) <= place or node.input[place] not in self._tensors:
            return None
        return int(numpy_helper.to_array(self._tensors[node.input[place]]).item())


def find_refusals(*graphs: Path) -> list[Refusal]:
    """Every operator of the graphs for which TensorRT would not build an engine, each once, in order."""
    return list(dict.fromkeys(refusal for graph in graphs for refusal in _refusals(graph)))


def _refusals(path: Path) -> Iterator[Refusal]:
    graph = onnx.load(path, load_external_data=False).graph
    constants = _Constants(graph)
    for node in graph.node:
        reason = TENSORRT_REFUSES[node.op_type](node, constants) if node.op_type in TENSORRT_REFUSES else None
        if reason is not None:
            yield Refusal(node.op_type, node.name.rpartition("/")[0] or node.name, reason)


def _conv_transpose(node: NodeProto, _constants: _Constants) -> str | None:
    given = _attributes(node)
    if max(given.get("strides", [1])) > 1 and max(given.get("dilations", [1])) > 1:
        return "it has both a stride and a dilation"
    if "output_shape" in given or given.get("auto_pad", b"NOTSET") != b"NOTSET":
        return "it has output_shape or auto_pad, for which TensorRT pads the other side than ONNX Runtime"
    return None


def _average_pool(node: NodeProto, _constants: _Constants) -> str | None:
    return "it has a dilation" if max(_attributes(node).get("dilations", [1])) > 1 else None


def _max_pool(node: NodeProto, _constants: _Constants) -> str | None:
    return "it returns the indices of the largest values" if len(node.output) > 1 else None


def _unknown(_node: NodeProto, _constants: _Constants) -> str | None:
    return "TensorRT has no such operator"


def _scatter(node: NodeProto, _constants: _Constants) -> str | None:
    return "it has a reduction" if _attributes(node).get("reduction", b"none") != b"none" else None


def _reduce(node: NodeProto, constants: _Constants) -> str | None:
    return None if constants.has(node, 1) else "its axes are computed"


def _top_k(node: NodeProto, constants: _Constants) -> str | None:
    count = constants.integer(node, 1)
    return f"it returns {count} values, TensorRT sorts at most {MOST_RANKS}" if count and count > MOST_RANKS else None


TENSORRT_REFUSES: dict[str, Callable[[NodeProto, _Constants], str | None]] = {
    "Attention": _unknown,
    "AveragePool": _average_pool,
    "BitwiseAnd": _unknown,
    "BitwiseNot": _unknown,
    "BitwiseOr": _unknown,
    "BitwiseXor": _unknown,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "MaxUnpool": _unknown,
    "NonZero": _unknown,
    "ReduceL1": _reduce,
    "ReduceL2": _reduce,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "ReduceMin": _reduce,
    "ReduceProd": _reduce,
    "ReduceSum": _reduce,
    "ReduceSumSquare": _reduce,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "TopK": _top_k,
}
"""ONNX operator → function that returns why TensorRT refuses a node, or None if it supports the node."""


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
