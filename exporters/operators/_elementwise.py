"""Non-linear functions of single elements, which may read frozen values only; casts; no-ops."""

from __future__ import annotations

from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor, fx

from bcos_sdk.exporters.onnx import Emitter, Spelling
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.program import Program, bind, is_constant, is_floating, path_of

__all__ = ["ELEMENTWISE", "binary", "from_half", "remove_node", "to_half", "unary"]

aten = torch.ops.aten


def to_half(x: Tensor) -> Tensor:
    """Round to fp16: 11 significant bits; values beyond 65504 become infinite."""
    return x.to(torch.float16)


def from_half(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert fp16 to the program's dtype, without loss."""
    return x.to(dtype)


def unary(kind: str) -> Spelling:
    """The spelling of a function with one operand."""
    return lambda e, node: e.op(kind, node.args[0])


def binary(kind: str) -> Spelling:
    """The spelling of a function with two operands. ONNX requires operands of the same type."""

    def spell(e: Emitter, node: fx.Node) -> str:
        operands = [_as_float(e, operand) if is_floating(node) else operand for operand in node.args[:2]]
        return e.op(kind, *operands)

    return spell


def _as_float(e: Emitter, operand: Any) -> Any:
    """Cast a boolean or integer operand to float: torch converts types implicitly, ONNX does not."""
    if not isinstance(operand, fx.Node) or is_floating(operand):
        return operand
    if is_constant(operand):
        return e.constant(operand.meta["val"].float(), path_of(operand))
    return e.op("Cast", operand, to=TensorProto.FLOAT)


def _spell_square(e: Emitter, node: fx.Node) -> str:
    return e.op("Mul", node.args[0], node.args[0])


def _spell_rsqrt(e: Emitter, node: fx.Node) -> str:
    return e.op("Reciprocal", e.op("Sqrt", node.args[0]))


def _spell_power(e: Emitter, node: fx.Node) -> str:
    x, exponent = node.args
    if exponent == 2:
        return e.op("Mul", x, x)
    return e.op("Sqrt", x) if exponent == 0.5 else e.op("Pow", x, exponent)


def _spell_clamp_min(e: Emitter, node: fx.Node) -> str:
    return e.op("Max", node.args[0], node.args[1])


def _spell_softmax(e: Emitter, node: fx.Node) -> str:
    return e.op("Softmax", node.args[0], axis=node.args[1])


def _spell_where(e: Emitter, node: fx.Node) -> str:
    return e.op("Where", *node.args)


def _cast_to(kind: int) -> Spelling:
    return lambda e, node: e.op("Cast", node.args[0], to=kind)


def remove_node(program: Program, node: fx.Node) -> None:
    """f(x) = x: every use of the node reads its input instead."""
    node.replace_all_uses_with(node.all_input_nodes[0])
    program.graph.erase_node(node)


def _remove_same_cast(program: Program, node: fx.Node) -> None:
    if node.meta["val"].dtype == bind(node).self.meta["val"].dtype:
        remove_node(program, node)


def _remove_dropout(program: Program, node: fx.Node) -> None:
    assert not bind(node).train, "capture takes modules in eval mode only"
    remove_node(program, node)


_UNARY = {
    aten.abs.default: "Abs",
    aten.cos.default: "Cos",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.reciprocal.default: "Reciprocal",
    aten.sigmoid.default: "Sigmoid",
    aten.sin.default: "Sin",
    aten.sqrt.default: "Sqrt",
    aten.tanh.default: "Tanh",
}
_BINARY = {
    aten.gt.Scalar: "Greater",
    aten.gt.Tensor: "Greater",
    aten.maximum.default: "Max",
    aten.minimum.default: "Min",
    aten.pow.Tensor_Tensor: "Pow",
}
_COPIES = (aten.alias.default, aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default)

ELEMENTWISE = (
    *(Operator(target, Kind.FROZEN, unary(kind)) for target, kind in _UNARY.items()),
    *(Operator(target, Kind.FROZEN, binary(kind)) for target, kind in _BINARY.items()),
    Operator(aten.square.default, Kind.FROZEN, _spell_square),
    Operator(aten.rsqrt.default, Kind.FROZEN, _spell_rsqrt),
    Operator(aten.pow.Tensor_Scalar, Kind.FROZEN, _spell_power),
    Operator(aten.clamp_min.default, Kind.FROZEN, _spell_clamp_min),
    Operator(aten.softmax.int, Kind.FROZEN, _spell_softmax),
    Operator(aten.where.self, Kind.FROZEN, _spell_where),
    Operator(to_half, Kind.EXPLAIN, _cast_to(TensorProto.FLOAT16)),
    Operator(from_half, Kind.EXPLAIN, _cast_to(TensorProto.FLOAT)),
    Operator(aten.to.dtype, Kind.SPELLING, rewrite=_remove_same_cast, traits=Trait.ALIASES),
    Operator(aten.dropout.default, Kind.SPELLING, rewrite=_remove_dropout),
    *(Operator(target, Kind.SPELLING, rewrite=remove_node, traits=Trait.ALIASES) for target in _COPIES),
)
