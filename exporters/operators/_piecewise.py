"""Piecewise linear functions of single elements: y = slope · x + offset, where slope and offset are frozen.

Which piece holds is a choice, which the transposed pass takes from the forward pass. The slope multiplies the
cotangent, and the offset goes into the ledger. At the border of two pieces the slope is that of autograd.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import elementwise
from bcos_sdk.exporters.operators._elementwise import binary, promoted, unary
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.program import Program, bind, is_constant, is_floating, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["PIECEWISE", "keep_where"]

aten = torch.ops.aten


def keep_where(ct: Tensor, mask: Tensor) -> Tensor:
    """The cotangent where the mask is true, zero elsewhere."""
    return torch.where(mask, ct, torch.zeros((), dtype=ct.dtype))


# -------------------------------------------------------------------------------------------------- transpose rules


def _transpose_relu(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    positive = t.call(aten.gt.Scalar, node, 0)
    t.add(bind(node).self, t.call(keep_where, ct, t.broadcast_over_targets(positive)))


def _transpose_clamp(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """Inside its bounds y = x, outside y is a bound. On a bound the slope is one, as in autograd."""
    a = bind(node)
    low, high = _bounds(node)
    inside = [t.call(aten.ge.Scalar, a.self, low)] if low > -inf else []
    inside += [t.call(aten.le.Scalar, a.self, high)] if high < inf else []
    mask = inside[0] if len(inside) == 1 else t.call(aten.logical_and.default, *inside)
    t.add(a.self, t.call(keep_where, ct, t.broadcast_over_targets(mask)))
    if {low, high} - {0, inf, -inf}:
        offset = t.call(keep_where, node, t.call(aten.logical_not.default, mask))
        t.add_bias(offset, ct, sample_shape(node))


def _transpose_abs(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    sign = t.broadcast_over_targets(t.call(aten.sign.default, bind(node).self))
    t.add(bind(node).self, t.call(aten.mul.Tensor, ct, sign))


def _transpose_where(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """Where the condition holds the first operand gets the cotangent, elsewhere the second."""
    a = bind(node)
    opposite = t.call(aten.logical_not.default, a.condition)
    for operand, mask in ((a.self, a.condition), (a.other, opposite)):
        if operand not in t.live and is_zero(t.program, operand):
            continue
        own = t.call(keep_where, ct, t.broadcast_frozen(mask, len(shape_of(node))))
        if operand in t.live:
            t.add(operand, t.sum_to(own, operand, sample_shape(node)))
        else:
            t.add_bias(operand, own, sample_shape(node))


def _transpose_larger(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """The larger operand gets the cotangent, for a minimum the smaller; if both are equal each gets half of it."""
    a = bind(node)
    compare = aten.gt.Tensor if node.target is aten.maximum.default else aten.lt.Tensor
    ties = t.call(aten.mul.Tensor, t.call(aten.eq.Tensor, a.self, a.other), 0.5)
    wins = t.call(aten.add.Tensor, t.call(compare, a.self, a.other), ties)
    loses = t.call(aten.add.Tensor, t.call(aten.neg.default, wins), 1.0)
    for operand, share in ((a.self, wins), (a.other, loses)):
        own = t.call(aten.mul.Tensor, ct, t.broadcast_frozen(share, len(shape_of(node))))
        if operand in t.live:
            t.add(operand, t.sum_to(own, operand, sample_shape(node)))
        else:
            t.add_bias(operand, own, sample_shape(node))


def is_zero(program: Program, operand: Any) -> bool:
    """Whether the operand is the number zero, or a constant of zeros."""
    if is_constant(operand):
        return not bool(program.value_of(operand).any())
    return bool(operand == 0) if not isinstance(operand, fx.Node) else False


def _bounds(node: fx.Node) -> tuple[float, float]:
    a = bind(node)
    low, high = getattr(a, "min", None), getattr(a, "max", None)
    return (-inf if low is None else low), (inf if high is None else high)


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_clamp(e: Emitter, node: fx.Node) -> str:
    x: Any = promoted(e, node, bind(node).self)[0]
    for kind, bound in zip(("Max", "Min"), _bounds(node), strict=True):
        if -inf < bound < inf:
            x = e.op(kind, x, *promoted(e, node, bound))
    result: str = x
    return result


def _spell_where(e: Emitter, node: fx.Node) -> str:
    return e.op("Where", node.args[0], *promoted(e, node, *node.args[1:]))


def _spell_keep_where(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Where", a.mask, a.ct, 0.0)


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_step(program: Program, node: fx.Node) -> None:
    """A function with steps has the slope zero everywhere, so it is a frozen value of a live one."""
    source: Any = node.args[0]
    if not is_floating(source):
        program.substitute(node, source)
    elif source.target is not aten.detach.default:
        node.update_arg(0, program.compute(node, aten.detach.default, source))


def _rewrite_hardtanh(program: Program, node: fx.Node) -> None:
    """Between its bounds y = x, outside y is a bound. Unlike a clamp it has the slope zero on a bound."""
    a = bind(node)
    low, high = (0, 6) if node.target is aten.relu6.default else (a.min_val, a.max_val)
    above = program.compute(node, aten.gt.Scalar, a.self, low)
    below = program.compute(node, aten.lt.Scalar, a.self, high)
    clamped = program.compute(node, aten.clamp.default, a.self, low, high)
    bounds = program.compute(node, aten.detach.default, clamped)
    program.replace(
        node, aten.where.self, program.compute(node, aten.logical_and.default, above, below), a.self, bounds
    )


def _rewrite_clamp_tensor(program: Program, node: fx.Node) -> None:
    a = bind(node)
    low, high = getattr(a, "min", None), getattr(a, "max", None)
    value = a.self if low is None else program.compute(node, aten.maximum.default, a.self, low)
    program.substitute(node, value if high is None else program.compute(node, aten.minimum.default, value, high))


def _rewrite_rrelu(program: Program, node: fx.Node) -> None:
    """In eval mode the slope for negative values is the mean of its range."""
    a = bind(node)
    small = program.compute(node, aten.mul.Tensor, a.self, (a.lower + a.upper) / 2)
    program.replace(node, aten.where.self, program.compute(node, aten.gt.Scalar, a.self, 0), a.self, small)


_STEPS = {
    aten.ceil.default: "Ceil",
    aten.floor.default: "Floor",
    aten.round.default: "Round",
    aten.sign.default: "Sign",
}
_CLAMPS = (aten.clamp.default, aten.clamp_max.default, aten.clamp_min.default)
_TENSOR_CLAMPS = (aten.clamp.Tensor, aten.clamp_max.Tensor, aten.clamp_min.Tensor)

PIECEWISE = (
    Operator(aten.relu.default, Kind.CHOICE, unary("Relu"), _transpose_relu, elementwise),
    Operator(aten.abs.default, Kind.CHOICE, unary("Abs"), _transpose_abs, elementwise),
    Operator(aten.where.self, Kind.CHOICE, _spell_where, _transpose_where, elementwise),
    Operator(aten.maximum.default, Kind.CHOICE, binary("Max"), _transpose_larger, elementwise),
    Operator(aten.minimum.default, Kind.CHOICE, binary("Min"), _transpose_larger, elementwise),
    *(Operator(target, Kind.CHOICE, _spell_clamp, _transpose_clamp, elementwise) for target in _CLAMPS),
    *(
        Operator(target, Kind.FROZEN, unary(kind), batch=elementwise, rewrite=_rewrite_step, traits=Trait.STEPS)
        for target, kind in _STEPS.items()
    ),
    Operator(keep_where, Kind.EXPLAIN, _spell_keep_where),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_clamp_tensor) for target in _TENSOR_CLAMPS),
    Operator(aten.hardtanh.default, Kind.SPELLING, rewrite=_rewrite_hardtanh),
    Operator(aten.relu6.default, Kind.SPELLING, rewrite=_rewrite_hardtanh),
    Operator(aten.rrelu.default, Kind.SPELLING, rewrite=_rewrite_rrelu),
)
