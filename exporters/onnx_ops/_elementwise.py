"""Operators that act on each number by itself."""

from __future__ import annotations

import operator
from typing import Any

import torch
from onnx import TensorProto
from torch import fx

from bcos_sdk.exporters import _ops as ops
from bcos_sdk.exporters._emit import EmitRule, Emitter
from bcos_sdk.exporters._program import is_constant, is_floating, path_of
from bcos_sdk.exporters.onnx_ops._table import RULES, spells

aten = torch.ops.aten


def _unary(kind: str) -> EmitRule:
    return lambda e, node: e.op(kind, node.args[0])


def _binary(kind: str) -> EmitRule:
    def rule(e: Emitter, node: fx.Node) -> str:
        operands = [_as_float(e, operand) if is_floating(node) else operand for operand in node.args[:2]]
        return e.op(kind, *operands)

    return rule


def _as_float(e: Emitter, operand: Any) -> Any:
    """Booleans and integers meet floats in torch; in ONNX both sides must be of one type."""
    if not isinstance(operand, fx.Node) or is_floating(operand):
        return operand
    if is_constant(operand):
        return e.constant(operand.meta["val"].float(), path_of(operand))
    return e.op("Cast", operand, to=TensorProto.FLOAT)


for target, kind in {
    aten.abs.default: "Abs",
    aten.cos.default: "Cos",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.neg.default: "Neg",
    aten.reciprocal.default: "Reciprocal",
    aten.relu.default: "Relu",
    aten.sigmoid.default: "Sigmoid",
    aten.sin.default: "Sin",
    aten.sqrt.default: "Sqrt",
    aten.tanh.default: "Tanh",
}.items():
    RULES[target] = _unary(kind)

for target, kind in {
    aten.add.Tensor: "Add",
    aten.div.Tensor: "Div",
    aten.gt.Scalar: "Greater",
    aten.gt.Tensor: "Greater",
    aten.matmul.default: "MatMul",
    aten.maximum.default: "Max",
    aten.minimum.default: "Min",
    aten.mul.Tensor: "Mul",
    aten.pow.Tensor_Tensor: "Pow",
    aten.sub.Tensor: "Sub",
}.items():
    RULES[target] = _binary(kind)


@spells(operator.getitem)
def getitem(e: Emitter, node: fx.Node) -> str:
    source, index = node.args
    return str(e.values[source][index])  # type: ignore[index]


@spells(aten.square.default)
def square(e: Emitter, node: fx.Node) -> str:
    return e.op("Mul", node.args[0], node.args[0])


@spells(aten.rsqrt.default)
def rsqrt(e: Emitter, node: fx.Node) -> str:
    return e.op("Reciprocal", e.op("Sqrt", node.args[0]))


@spells(aten.pow.Tensor_Scalar)
def power(e: Emitter, node: fx.Node) -> str:
    x, exponent = node.args
    if exponent == 2:
        return e.op("Mul", x, x)
    return e.op("Sqrt", x) if exponent == 0.5 else e.op("Pow", x, exponent)


@spells(aten.clamp_min.default)
def clamp_min(e: Emitter, node: fx.Node) -> str:
    return e.op("Max", node.args[0], node.args[1])


@spells(ops.to_half)
def to_half(e: Emitter, node: fx.Node) -> str:
    return e.op("Cast", node.args[0], to=TensorProto.FLOAT16)


@spells(ops.from_half)
def from_half(e: Emitter, node: fx.Node) -> str:
    return e.op("Cast", node.args[0], to=TensorProto.FLOAT)


@spells(aten.softmax.int)
def softmax(e: Emitter, node: fx.Node) -> str:
    return e.op("Softmax", node.args[0], axis=node.args[1])


@spells(aten.where.self)
def where(e: Emitter, node: fx.Node) -> str:
    return e.op("Where", *node.args)
