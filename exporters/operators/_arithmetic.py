"""Sums, differences, products and quotients of two operands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.operators._batch_rules import elementwise
from bcos_sdk.exporters.operators._elementwise import binary, unary
from bcos_sdk.exporters.operators._operator import Kind, Operator, Rewrite
from bcos_sdk.exporters.program import Program, bind, path_of, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["ARITHMETIC"]

aten = torch.ops.aten


def _transpose_sum(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """y = a ± b: both operands get the cotangent of y, the second one with the sign."""
    a = bind(node)
    sample = sample_shape(node)
    for operand, sign in ((a.self, 1), (a.other, -1 if node.target is aten.sub.Tensor else 1)):
        if operand in t.live:
            own = t.sum_to(ct, operand, sample)
            t.add(operand, own if sign > 0 else t.call(aten.neg.default, own))
        elif isinstance(operand, fx.Node) or operand != 0:  # Python's sum() begins with 0
            t.add_bias(operand, ct, sample, sign=sign)


def _transpose_neg(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    t.add(bind(node).self, t.call(aten.neg.default, ct))


def _transpose_mul(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.self in t.live and a.other in t.live:
        raise t.refusal("it multiplies two live values")
    live, frozen = (a.self, a.other) if a.self in t.live else (a.other, a.self)
    _scale(t, node, ct, live, frozen)


def _transpose_div(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.other in t.live:
        raise t.refusal("it divides by a live value")
    _scale(t, node, ct, a.self, a.other)


def _scale(t: Transposition, node: fx.Node, ct: fx.Node, live: fx.Node, frozen: Any) -> None:
    """y = x · f or y = x / f: the cotangent is multiplied or divided by f as well."""
    operator: Any = node.target
    scaled = t.call(operator, ct, t.broadcast_frozen(frozen, len(shape_of(node))))
    t.add(live, t.sum_to(scaled, live, sample_shape(node)))


def _split_alpha(program: Program, node: fx.Node) -> None:
    """x ± α·y → z = α·y, then x ± z."""
    a = bind(node)
    if a.alpha != 1:
        is_number = not isinstance(a.other, fx.Node)
        scaled = a.other * a.alpha if is_number else program.compute(node, aten.mul.Tensor, a.other, a.alpha)
        program.replace(node, node.target, a.self, scaled)  # type: ignore[arg-type]


def _rewrite_rsub(program: Program, node: fx.Node) -> None:
    """rsub(x, c) = c − α·x = −α·x + c."""
    a = bind(node)
    if a.alpha == 1:
        negative = program.compute(node, aten.neg.default, a.self)
    else:
        negative = program.compute(node, aten.mul.Tensor, a.self, -a.alpha)
    program.replace(node, aten.add.Tensor, negative, a.other)


def _rewrite_batch_norm(program: Program, node: fx.Node) -> None:
    """γ (x − mean) / sqrt(var + eps) + β with the running statistics → a difference, a product and a sum."""
    a = bind(node)
    if getattr(a, "training", False) or a.running_mean is None:
        raise CaptureError(
            f"the batch norm '{path_of(node)}' has no running statistics",
            source=path_of(node),
            hint="Statistics of the batch would mix the images of a batch. Use track_running_stats=True.",
        )
    shape = (-1, *[1] * (len(shape_of(a.input)) - 2))
    scale = (program.value_of(a.running_var) + a.eps).rsqrt()
    scale = scale if a.weight is None else scale * program.value_of(a.weight)
    steps: list[tuple[Any, Tensor, fx.Node]] = [
        (aten.sub.Tensor, program.value_of(a.running_mean), a.running_mean),
        (aten.mul.Tensor, scale, a.running_var),
    ]
    if a.bias is not None:
        steps.append((aten.add.Tensor, program.value_of(a.bias), a.bias))
    value = a.input
    for operator, operand, source in steps:
        constant = program.constant(path_of(source), operand.reshape(shape))
        value = program.compute(node, operator, value, constant)
    if node.target is aten.batch_norm.default:
        program.substitute(node, value)
        return
    for getitem in list(node.users):  # of the result; the statistics, which the operator also returns, nobody reads
        program.substitute(getitem, value)
    program.graph.erase_node(node)


def _rewrite_scalar(target: Any) -> Rewrite:
    """The overload for a number is that for tensors."""

    def rewrite(program: Program, node: fx.Node) -> None:
        program.replace(node, target, *node.args, **node.kwargs)

    return rewrite


_SCALARS = {
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
}
_BATCH_NORMS = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)

ARITHMETIC = (
    Operator(aten.add.Tensor, Kind.LINEAR, binary("Add"), _transpose_sum, elementwise, _split_alpha),
    Operator(aten.sub.Tensor, Kind.LINEAR, binary("Sub"), _transpose_sum, elementwise, _split_alpha),
    Operator(aten.neg.default, Kind.LINEAR, unary("Neg"), _transpose_neg, elementwise),
    Operator(aten.mul.Tensor, Kind.LINEAR, binary("Mul"), _transpose_mul, elementwise),
    Operator(aten.div.Tensor, Kind.LINEAR, binary("Div"), _transpose_div, elementwise),
    Operator(aten.rsub.Scalar, Kind.SPELLING, rewrite=_rewrite_rsub),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_scalar(plain)) for target, plain in _SCALARS.items()),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_batch_norm) for target in _BATCH_NORMS),
)
