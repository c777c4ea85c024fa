"""The table: one ONNX spelling per operator, and what several spellings share."""

from __future__ import annotations

from typing import Any

from torch import fx

from bcos_sdk.exporters._emit import EmitRule, Emitter
from bcos_sdk.exporters._program import pair, shape_of
from bcos_sdk.exporters._registrar import registrar

__all__ = ["RULES", "extra_padding", "positive", "spells", "unfold", "window"]

RULES: dict[Any, EmitRule] = {}


spells = registrar(RULES)  # @spells(operator, …) registers how an operator is written


def positive(dims: Any, node: fx.Node) -> list[int]:
    """Axes counted from the front, as ONNX likes them."""
    rank = len(shape_of(node))
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)]


def window(stride: Any, padding: Any, dilation: Any = 1) -> dict[str, list[int]]:
    """The attributes of a sliding window, pads written out on all sides."""
    return {"strides": [*pair(stride)], "pads": [*pair(padding)] * 2, "dilations": [*pair(dilation)]}


def extra_padding(left: tuple[int, int]) -> dict[str, list[int]]:
    """`output_padding`, where a stride has cut something off."""
    return {"output_padding": [*left]} if any(left) else {}


def unfold(e: Emitter, flat: str, node: fx.Node) -> str:
    """[B·K, …] → [B, K, …], the shape of the node's value; [B·C, 1, …] → [B, C, …] in rows."""
    if len(shape_of(node)) == 4:
        return e.op("Reshape", flat, e.ints(-1, *shape_of(node)[1:]))
    return e.op("Reshape", flat, e.cotangent_shape(shape_of(node)[2:]))
