"""One rule per operator: given the cotangent of its result, the cotangents of its live operands.

For y = A x with A frozen, the rule is ct ↦ Aᵀ ct. A rule does not know how cotangents are laid out: it asks the
transposition for axes, and for frozen values that fit beside a cotangent.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters import _ops as ops
from bcos_sdk.exporters._program import bind, pair, sample_shape, shape_of
from bcos_sdk.exporters._transpose import Transposition, rule

aten = torch.ops.aten


# ------------------------------------------------------------------------------- sums and products


@rule(aten.add.Tensor, aten.sub.Tensor)
def add(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.alpha != 1:
        raise t.refusal("a sum with a factor (alpha)")
    sample = sample_shape(node)
    for operand, sign in ((a.self, 1), (a.other, -1 if node.target is aten.sub.Tensor else 1)):
        if operand in t.live:
            own = t.fit(ct, operand, sample)
            t.add(operand, own if sign > 0 else t.call(aten.neg.default, own))
        else:
            t.add_bias(operand, ct, sample, sign=sign)


@rule(aten.neg.default)
def neg(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    t.add(bind(node).self, t.call(aten.neg.default, ct))


@rule(aten.mul.Tensor)
def mul(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.self in t.live and a.other in t.live:
        raise t.refusal("a product of two live values")
    live, frozen = (a.self, a.other) if a.self in t.live else (a.other, a.self)
    _scale(t, node, ct, live, frozen)


@rule(aten.div.Tensor)
def div(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.other in t.live:
        raise t.refusal("a division by a live value")
    _scale(t, node, ct, a.self, a.other)


def _scale(t: Transposition, node: fx.Node, ct: fx.Node, live: fx.Node, frozen: Any) -> None:
    """y = x · frozen and y = x / frozen do the same to the cotangent."""
    operator: Any = node.target
    scaled = t.call(operator, ct, t.beside(frozen, len(shape_of(node))))
    t.add(live, t.fit(scaled, live, sample_shape(node)))


# ------------------------------------------------------------------------------------- linear maps


@rule(aten.conv2d.default)
def conv2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.weight in t.live:
        raise t.refusal("a convolution with live filters")
    if a.bias is not None:
        t.add_bias(a.bias, t.call(aten.sum.dim_IntList, ct, [t.axis(2), t.axis(3)]), sample_shape(node)[:1])
    stride, padding, dilation = pair(a.stride), pair(a.padding), pair(a.dilation)
    size, kernel = pair(sample_shape(a.input)[1:]), pair(shape_of(a.weight)[2:])
    left = ops.unreached(size, kernel, stride, padding, dilation)
    if max(stride) > 1 and max(dilation) > 1:  # TensorRT takes either, not both: so the stride's zeros are written out
        for axis, (length, step, rest) in enumerate(zip(sample_shape(node)[1:], stride, left, strict=True), 2):
            ct = t.call(ops.insert_zeros, ct, t.axis(axis), step, 0, (length - 1) * step + 1 + rest)
        stride, left = (1, 1), (0, 0)
    t.add(a.input, t.call(ops.conv_transpose, ct, a.weight, stride, padding, left, dilation, a.groups))


@rule(aten.linear.default)
def linear(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.weight in t.live:
        raise t.refusal("a linear map with live weights")
    if a.bias is not None:
        t.add_bias(a.bias, ct, sample_shape(node))
    t.add(a.input, t.call(aten.matmul.default, ct, a.weight))


@rule(aten.matmul.default)
def matmul(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.self in t.live and a.other in t.live:
        raise t.refusal("a product of two live matrices")
    rank = len(shape_of(node))
    live, frozen = (a.self, a.other) if a.self in t.live else (a.other, a.self)
    if min(len(shape_of(live)), len(shape_of(frozen))) < 2:
        raise t.refusal("a product of a matrix and a vector: give the vector a second axis")
    turned = _transposed(t, frozen, rank)
    operands = (ct, turned) if live is a.self else (turned, ct)
    product = t.call(aten.matmul.default, *operands)
    t.add(live, t.fit(product, live, (*sample_shape(node)[:-2], *sample_shape(live)[-2:])))


def _transposed(t: Transposition, frozen: fx.Node, rank: int) -> fx.Node:
    matrix = t.beside(frozen, rank)
    axes = list(range(len(shape_of(frozen)) + (matrix is not frozen)))
    return t.call(aten.permute.default, matrix, [*axes[:-2], axes[-1], axes[-2]])


# -------------------------------------------------------------------------------------- reductions


@rule(aten.sum.dim_IntList)
def sum_(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    _spread(t, a.self, a.dim, ct, is_mean=False)


@rule(aten.mean.dim)
def mean(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    _spread(t, a.self, a.dim, ct, is_mean=True)


@rule(aten.var_mean.dim, aten.var_mean.correction)
def var_mean(t: Transposition, node: fx.Node, cts: dict[int, fx.Node]) -> None:
    if 0 in cts:
        raise t.refusal("a variance that is not detached")
    a = bind(node)
    _spread(t, a.self, a.dim, cts[1], is_mean=True)


def _spread(t: Transposition, x: fx.Node, dims: list[int], ct: fx.Node, *, is_mean: bool) -> None:
    """The transpose of a sum gives every summand the cotangent of the sum."""
    sample = sample_shape(x)
    reduced = {dim % len(shape_of(x)) - 1 for dim in dims}
    if -1 in reduced:
        raise t.refusal("a reduction over the batch axis")
    ct = t.reshape(ct, tuple(1 if i in reduced else n for i, n in enumerate(sample)))
    if is_mean:
        ct = t.call(aten.mul.Tensor, ct, 1 / prod(sample[i] for i in reduced))
    t.add(x, t.call(ops.spread, ct, sample))


@rule(aten.avg_pool2d.default)
def avg_pool2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    kernel, padding = pair(a.kernel_size), pair(a.padding)
    if a.ceil_mode or a.divisor_override or (not a.count_include_pad and any(padding)):
        raise t.refusal("an average pool with ceil_mode, divisor_override or count_include_pad=False")
    size = sample_shape(a.self)[1:]
    t.add(a.self, t.call(ops.avg_pool_transpose, ct, kernel, pair(a.stride or kernel), padding, size))


# ------------------------------------------------------------------------------------------ shapes


@rule(ops.reshape_sample)
def reshape(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    x = bind(node).x
    t.add(x, t.reshape(ct, sample_shape(x)))


@rule(aten.permute.default)
def permute(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    order = [dim % len(a.dims) for dim in a.dims]
    if order[0] != 0:
        raise t.refusal("a permutation that moves the batch axis")
    back = [t.axis(order.index(i)) for i in range(len(order))]
    t.add(a.self, t.call(aten.permute.default, ct, [*range(t.axis(0)), *back]))


@rule(aten.expand.default, aten.expand_as.default)
def expand(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    x = bind(node).self
    if x not in t.live:
        t.add_bias(x, ct, sample_shape(node))
        return
    t.add(x, t.fit(ct, x, sample_shape(node)))


@rule(aten.cat.default)
def cat(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    axis = _sample_axis(t, a.dim, node)
    start = 0
    for part in a.tensors:
        end = start + shape_of(part)[axis]
        own = t.call(aten.slice.Tensor, ct, t.axis(axis), start, end)
        if part in t.live:
            t.add(part, own)
        else:
            t.add_bias(part, own, sample_shape(part))
        start = end


@rule(aten.slice.Tensor)
def slice_(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    axis = _sample_axis(t, a.dim, node)
    size = shape_of(a.self)[axis]
    start = slice(a.start, a.end).indices(size)[0]
    t.add(a.self, t.call(ops.insert_zeros, ct, t.axis(axis), a.step, start, size))


@rule(ops.pick_every)
def pick_every(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    for axis, step in zip((2, 3), a.stride, strict=True):
        ct = t.call(ops.insert_zeros, ct, t.axis(axis), step, 0, shape_of(a.x)[axis])
    t.add(a.x, ct)


@rule(aten.pad.default)
def pad(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.mode != "constant" or a.value:
        raise t.refusal("padding with anything but zeros")
    _sample_axis(t, -len(a.pad) // 2, node)
    t.add(a.self, t.call(aten.pad.default, ct, [-width for width in a.pad]))


def _sample_axis(t: Transposition, axis: int, node: fx.Node) -> int:
    axis %= len(shape_of(node))
    if axis == 0:
        raise t.refusal("an operation along the batch axis")
    return axis


# -------------------------------------------------------------------------------- piecewise linear


@rule(aten.relu.default)
def relu(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    positive = t.call(aten.gt.Scalar, node, 0)
    t.add(bind(node).self, t.call(ops.keep_where, ct, t.per_image(positive)))


@rule(aten.max.dim)
def max_(t: Transposition, node: fx.Node, cts: dict[int, fx.Node]) -> None:
    """MaxOut: the largest unit takes all; among equals the first."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    if axis == 0:
        raise t.refusal("a maximum over the batch axis")
    sample = list(sample_shape(a.self))
    sample[axis - 1] = 1
    ct = t.reshape(cts[0], tuple(sample))
    winner = t.call(ops.is_first_largest, a.self, axis)
    t.add(a.self, t.call(ops.keep_where, ct, t.per_image(winner)))


@rule(aten.max_pool2d.default)
def max_pool2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """The largest value of each window takes all; among equals the first."""
    a = bind(node)
    if a.ceil_mode or pair(a.dilation) != (1, 1):
        raise t.refusal("a max pool with ceil_mode or dilation")
    kernel, padding = pair(a.kernel_size), pair(a.padding)
    window = (kernel, pair(a.stride or kernel), padding)
    winner = t.per_image(t.call(ops.window_winners, a.self, *window))
    t.add(a.self, t.call(ops.scatter_windows, ct, winner, *window, sample_shape(a.self)[1:]))
