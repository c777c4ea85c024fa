"""Non-linear functions of single elements, which may read frozen values only; casts; no-ops."""

from __future__ import annotations

from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor, fx

from bcos_sdk.exporters.onnx import Emitter, Spelling
from bcos_sdk.exporters.operators._batch_rules import along_axes, elementwise
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.program import Program, is_constant, is_floating, path_of

__all__ = ["ELEMENTWISE", "binary", "from_half", "promoted", "remove_node", "to_half", "unary"]

aten = torch.ops.aten
prims = torch.ops.prims


def to_half(x: Tensor) -> Tensor:
    """Round to fp16: 11 significant bits; values beyond 65504 become infinite."""
    return x.to(torch.float16)


def from_half(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert fp16 to the program's dtype, without loss."""
    return x.to(dtype)


def unary(kind: str) -> Spelling:
    """The spelling of a function with one operand."""
    return lambda e, node: e.op(kind, *promoted(e, node, node.args[0]))


def binary(kind: str) -> Spelling:
    """The spelling of a function with two operands."""

    def spell(e: Emitter, node: fx.Node) -> str:
        is_logic = node.meta["val"].dtype is torch.bool and kind in _ON_BOOLEANS
        return e.op(_ON_BOOLEANS[kind] if is_logic else kind, *promoted(e, node, *node.args[:2]))

    return spell


def promoted(e: Emitter, node: fx.Node, *operands: Any) -> list[Any]:
    """The operands in the type that torch computes in: it converts integers and booleans implicitly, ONNX does not."""
    results, nodes = node.meta["val"].dtype, [one for one in operands if isinstance(one, fx.Node)]
    if results.is_floating_point or any(map(is_floating, nodes)) or any(isinstance(one, float) for one in operands):
        return [_as_float(e, one) for one in operands]
    if results is torch.bool and all(one.meta["val"].dtype is torch.bool for one in nodes):
        return [*operands] if len(nodes) == len(operands) else [_as_integer(e, one) for one in operands]
    return [_as_integer(e, one) for one in operands]


def _as_float(e: Emitter, operand: Any) -> Any:
    if not isinstance(operand, fx.Node) or is_floating(operand):
        return operand
    if is_constant(operand):
        return e.constant(operand.meta["val"].float(), path_of(operand))
    return e.op("Cast", operand, to=TensorProto.FLOAT)


def _as_integer(e: Emitter, operand: Any) -> Any:
    if not isinstance(operand, fx.Node):
        return e.constant(torch.tensor(operand, dtype=torch.int64), "number")
    if is_constant(operand):
        return e.constant(operand.meta["val"].long(), path_of(operand))
    return operand if operand.meta["val"].dtype is torch.int64 else e.op("Cast", operand, to=TensorProto.INT64)


def _spell_square(e: Emitter, node: fx.Node) -> str:
    (x,) = promoted(e, node, node.args[0])
    return e.op("Mul", x, x)


def _spell_rsqrt(e: Emitter, node: fx.Node) -> str:
    return e.op("Reciprocal", e.op("Sqrt", *promoted(e, node, node.args[0])))


def _spell_power(e: Emitter, node: fx.Node) -> str:
    x, exponent = promoted(e, node, *node.args)
    if node.args[1] == 2:
        return e.op("Mul", x, x)
    return e.op("Sqrt", x) if node.args[1] == 0.5 else e.op("Pow", x, exponent)


def _spell_softmax(e: Emitter, node: fx.Node) -> str:
    return e.op("Softmax", *promoted(e, node, node.args[0]), axis=node.args[1])


def _spell_power_of_number(e: Emitter, node: fx.Node) -> str:
    base, exponent = node.args
    return e.op("Pow", *promoted(e, node, base, exponent))


def _spell_not_equal(e: Emitter, node: fx.Node) -> str:
    return e.op("Not", e.op("Equal", *promoted(e, node, *node.args[:2])))


def _spell_remainder(e: Emitter, node: fx.Node) -> str:
    """x − y · ⌊x / y⌋: the result has the sign of y."""
    x, y = promoted(e, node, *node.args[:2])
    if not is_floating(node):
        return e.op("Mod", x, y)
    return e.op("Sub", x, e.op("Mul", e.op("Floor", e.op("Div", x, y)), y))


def _spell_fmod(e: Emitter, node: fx.Node) -> str:
    return e.op("Mod", *promoted(e, node, *node.args[:2]), fmod=1)


def _spell_truncation(e: Emitter, node: fx.Node) -> str:
    x = node.args[0]
    return e.op("Mul", e.op("Sign", x), e.op("Floor", e.op("Abs", x)))


def _spell_log1p(e: Emitter, node: fx.Node) -> str:
    return e.op("Log", e.op("Add", *promoted(e, node, node.args[0]), 1.0))


def _spell_expm1(e: Emitter, node: fx.Node) -> str:
    return e.op("Sub", e.op("Exp", *promoted(e, node, node.args[0])), 1.0)


def _spell_cast(e: Emitter, node: fx.Node) -> str:
    dtype = node.meta["val"].dtype
    kind = TensorProto.BOOL if dtype is torch.bool else TensorProto.FLOAT if is_floating(node) else TensorProto.INT64
    return e.op("Cast", node.args[0], to=kind)


def _cast_to(kind: int) -> Spelling:
    return lambda e, node: e.op("Cast", node.args[0], to=kind)


def remove_node(program: Program, node: fx.Node) -> None:
    """f(x) = x: every use of the node reads its input instead."""
    program.substitute(node, node.all_input_nodes[0])


def _rewrite_cast(program: Program, node: fx.Node) -> None:
    """A cast between floating-point numbers goes away, because a program runs in one precision. Others stay."""
    source, dtype = node.all_input_nodes[0], node.meta["val"].dtype
    if (dtype in _PRECISIONS and is_floating(source)) or dtype == source.meta["val"].dtype:
        remove_node(program, node)
    elif node.target is not aten.to.dtype:
        program.replace(node, aten.to.dtype, source, dtype)


_ON_BOOLEANS = {"Add": "Or", "Max": "Or", "Min": "And", "Mul": "And"}
_PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_UNARY = {
    aten.acos.default: "Acos",
    aten.asin.default: "Asin",
    aten.atan.default: "Atan",
    aten.cos.default: "Cos",
    aten.cosh.default: "Cosh",
    aten.erf.default: "Erf",
    aten.exp.default: "Exp",
    aten.isnan.default: "IsNaN",
    aten.log.default: "Log",
    aten.logical_not.default: "Not",
    aten.bitwise_not.default: "Not",
    aten.reciprocal.default: "Reciprocal",
    aten.sigmoid.default: "Sigmoid",
    aten.sin.default: "Sin",
    aten.sinh.default: "Sinh",
    aten.sqrt.default: "Sqrt",
    aten.tan.default: "Tan",
    aten.tanh.default: "Tanh",
}
_BINARY = {
    aten.bitwise_and.Tensor: "And",
    aten.bitwise_or.Tensor: "Or",
    aten.bitwise_xor.Tensor: "Xor",
    aten.eq.Scalar: "Equal",
    aten.eq.Tensor: "Equal",
    aten.ge.Scalar: "GreaterOrEqual",
    aten.ge.Tensor: "GreaterOrEqual",
    aten.gt.Scalar: "Greater",
    aten.gt.Tensor: "Greater",
    aten.le.Scalar: "LessOrEqual",
    aten.le.Tensor: "LessOrEqual",
    aten.logical_and.default: "And",
    aten.logical_or.default: "Or",
    aten.logical_xor.default: "Xor",
    aten.lt.Scalar: "Less",
    aten.lt.Tensor: "Less",
    aten.pow.Tensor_Tensor: "Pow",
}
_FROZEN = {
    aten.expm1.default: _spell_expm1,
    aten.log1p.default: _spell_log1p,
    aten.ne.Scalar: _spell_not_equal,
    aten.ne.Tensor: _spell_not_equal,
    aten.pow.Scalar: _spell_power_of_number,
    aten.pow.Tensor_Scalar: _spell_power,
    aten.rsqrt.default: _spell_rsqrt,
    aten.square.default: _spell_square,
}
_STEPS = {
    aten.fmod.Scalar: _spell_fmod,
    aten.fmod.Tensor: _spell_fmod,
    aten.remainder.Scalar: _spell_remainder,
    aten.remainder.Tensor: _spell_remainder,
    aten.trunc.default: _spell_truncation,
}
_COPIES = (
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
)
_CASTS = (aten._to_copy.default, aten.type_as.default, prims.convert_element_type.default)

ELEMENTWISE = (
    *(Operator(target, Kind.FROZEN, unary(kind), batch=elementwise) for target, kind in _UNARY.items()),
    *(Operator(target, Kind.FROZEN, binary(kind), batch=elementwise) for target, kind in _BINARY.items()),
    *(Operator(target, Kind.FROZEN, spell, batch=elementwise) for target, spell in _FROZEN.items()),
    *(Operator(target, Kind.FROZEN, spell, batch=elementwise, traits=Trait.STEPS) for target, spell in _STEPS.items()),
    Operator(aten.softmax.int, Kind.FROZEN, _spell_softmax, batch=along_axes),
    Operator(aten.detach.default, Kind.SPELLING, batch=elementwise),
    Operator(to_half, Kind.EXPLAIN, _cast_to(TensorProto.FLOAT16)),
    Operator(from_half, Kind.EXPLAIN, _cast_to(TensorProto.FLOAT)),
    Operator(aten.to.dtype, Kind.FROZEN, _spell_cast, batch=elementwise, rewrite=_rewrite_cast),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_cast) for target in _CASTS),
    *(Operator(target, Kind.SPELLING, rewrite=remove_node) for target in _COPIES),
)
