"""What TensorRT does not build, or computes differently from ONNX Runtime: found in a graph, and named by layer.

TensorRT's own `supports_operator` answers yes to some of these. Each entry was seen to fail, or to differ, with
TensorRT for RTX 1.7; its parser may refuse more, and says so when an engine is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import NodeProto, numpy_helper

from bcos_sdk.contract import MOST_RANKS
from bcos_sdk.exporters._registrar import registrar

__all__ = ["Refusal", "find_refusals"]


@dataclass(frozen=True)
class Refusal:
    """An operator of a graph, the layer it belongs to, and why TensorRT does not take it."""

    operator: str
    layer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} in {self.layer}: {self.reason}"


class _Context:
    """What a rule may ask of the graph around its node."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.constants = {tensor.name: tensor for tensor in graph.initializer}

    def is_constant(self, node: NodeProto, place: int) -> bool:
        return len(node.input) <= place or not node.input[place] or node.input[place] in self.constants


_Rule = Callable[[NodeProto, _Context], str | None]
_RULES: dict[str, _Rule] = {}
_refuses = registrar(_RULES)


def find_refusals(*graphs: Path) -> list[Refusal]:
    """Every operator of the graphs that would keep TensorRT from building their engines, each once, in order."""
    return list(dict.fromkeys(refusal for graph in graphs for refusal in _refusals(graph)))


def _refusals(path: Path) -> Iterator[Refusal]:
    graph = onnx.load(path, load_external_data=False).graph
    context = _Context(graph)
    for node in graph.node:
        reason = _RULES[node.op_type](node, context) if node.op_type in _RULES else None
        if reason is not None:
            yield Refusal(node.op_type, node.name.rpartition("/")[0] or node.name, reason)


@_refuses("ConvTranspose")
def conv_transpose(node: NodeProto, _context: _Context) -> str | None:
    given = _attributes(node)
    if max(given.get("strides", [1])) > 1 and max(given.get("dilations", [1])) > 1:
        return "a stride and a dilation at once"
    if "output_shape" in given or given.get("auto_pad", b"NOTSET") != b"NOTSET":
        return "output_shape or auto_pad, which pads on the other side than ONNX Runtime"
    return None


@_refuses("AveragePool")
def average_pool(node: NodeProto, _context: _Context) -> str | None:
    return "a dilation" if max(_attributes(node).get("dilations", [1])) > 1 else None


@_refuses("MaxPool")
def max_pool(node: NodeProto, _context: _Context) -> str | None:
    return "indices of the largest values" if len(node.output) > 1 else None


@_refuses("MaxUnpool", "NonZero", "Attention")
def never(_node: NodeProto, _context: _Context) -> str | None:
    return "it has no such operator"


@_refuses("ScatterElements", "ScatterND")
def scatter(node: NodeProto, _context: _Context) -> str | None:
    return "a reduction" if _attributes(node).get("reduction", b"none") != b"none" else None


@_refuses("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
def reduce(node: NodeProto, context: _Context) -> str | None:
    return None if context.is_constant(node, 1) else "axes that are computed"


@_refuses("TopK")
def top_k(node: NodeProto, context: _Context) -> str | None:
    if len(node.input) < 2 or node.input[1] not in context.constants:
        return None
    count = int(numpy_helper.to_array(context.constants[node.input[1]]).item())
    return f"the {count} largest, of {MOST_RANKS} at most" if count > MOST_RANKS else None


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
