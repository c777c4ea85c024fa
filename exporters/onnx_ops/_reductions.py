"""Sums, means, variances and average pools, forward and transposed."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from bcos_sdk.errors import ExportError
from bcos_sdk.exporters import _ops as ops
from bcos_sdk.exporters._emit import EmitRule, Emitter
from bcos_sdk.exporters._program import bind, pair, path_of, shape_of
from bcos_sdk.exporters.onnx_ops._table import RULES, extra_padding, positive, spells, unfold, window

aten = torch.ops.aten

_LONG_SUM = 4096


def _reduce(kind: str) -> EmitRule:
    def rule(e: Emitter, node: fx.Node) -> str:
        a = bind(node)
        return _in_steps(e, kind, e.value(a.self), positive(a.dim, a.self), shape_of(a.self), keepdim=a.keepdim)

    return rule


def _in_steps(e: Emitter, kind: str, x: str, axes: list[int], shape: tuple[int, ...], *, keepdim: bool) -> str:
    """A sum or mean; over many numbers axis by axis, because one long float32 sum loses digits that short ones keep."""
    if len(axes) == 1 or prod(shape[axis] for axis in axes) <= _LONG_SUM:
        return e.op(kind, x, e.ints(*axes), keepdims=int(keepdim))
    for axis in sorted(axes, reverse=True):
        x = e.op(kind, x, e.ints(axis), keepdims=int(keepdim))
    return x


RULES[aten.sum.dim_IntList] = _reduce("ReduceSum")
RULES[aten.mean.dim] = _reduce("ReduceMean")


@spells(aten.linalg_vector_norm.default)
def vector_norm(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if a.ord not in (1, 2) or a.dim is None:
        raise ExportError(f"a {a.ord}-norm in '{path_of(node)}' cannot be written as ONNX", source=path_of(node))
    return e.op(f"ReduceL{a.ord:g}", a.self, e.ints(*positive(a.dim, a.self)), keepdims=int(a.keepdim))


@spells(aten.var.correction)
def var(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _variance(e, a, a.correction)[0]


@spells(aten.var_mean.correction)
def var_mean(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    return _variance(e, a, a.correction)


@spells(aten.var_mean.dim)
def var_mean_dim(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    return _variance(e, a, int(a.unbiased))


def _variance(e: Emitter, a: Any, correction: float | None) -> list[str]:
    dims, shape = positive(a.dim, a.self), shape_of(a.self)
    mean = _in_steps(e, "ReduceMean", e.value(a.self), dims, shape, keepdim=True)
    apart = e.op("Sub", a.self, mean)
    var = _in_steps(e, "ReduceMean", e.op("Mul", apart, apart), dims, shape, keepdim=a.keepdim)
    count = prod(shape[dim] for dim in dims)
    correction = 1 if correction is None else correction
    if correction:
        var = e.op("Mul", var, count / (count - correction))
    return [var, mean if a.keepdim else e.op("Squeeze", mean, e.ints(*dims))]


@spells(aten.avg_pool2d.default)
def avg_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    pads = [*pair(a.padding)] * 2
    pooled = e.op(
        "AveragePool",
        a.self,
        kernel_shape=[*kernel],
        strides=[*pair(a.stride or kernel)],
        pads=pads,
        ceil_mode=int(a.ceil_mode),
        count_include_pad=int(a.count_include_pad),
    )
    return pooled if a.divisor_override is None else e.op("Mul", pooled, prod(kernel) / a.divisor_override)


@spells(ops.avg_pool_transpose)
def avg_pool_transpose(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    left = ops.unreached(a.size, a.kernel, a.stride, a.padding)
    sliding = window(a.stride, a.padding, 1) | extra_padding(left)
    share = 1 / prod(a.kernel)
    if len(shape_of(node)) == 4:
        channels = shape_of(node)[1]
        weight = e.constant(torch.full((channels, 1, *a.kernel), share), "average")
        return e.op("ConvTranspose", a.ct, weight, **sliding, group=channels)
    flat = e.op("Reshape", a.ct, e.ints(-1, 1, *shape_of(a.ct)[3:]))
    weight = e.constant(torch.full((1, 1, *a.kernel), share), "average")
    return unfold(e, e.op("ConvTranspose", flat, weight, **sliding), node)


@spells(ops.repeat_average)
def repeat_average(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    *leading, channels, rows, columns = shape_of(a.ct)
    as_they_are = [0] * len(leading)
    share = e.op("Mul", a.ct, 1 / prod(a.kernel))
    blocks = e.op("Reshape", share, e.ints(*as_they_are, channels, rows, 1, columns, 1))
    blocks = e.op("Expand", blocks, e.ints(*[1] * len(leading), 1, 1, a.kernel[0], 1, a.kernel[1]))
    grown = e.op("Reshape", blocks, e.ints(*as_they_are, channels, rows * a.kernel[0], columns * a.kernel[1]))
    left = [a.size[0] - rows * a.kernel[0], a.size[1] - columns * a.kernel[1]]
    return e.op("Pad", grown, e.ints(*[0] * (2 * len(shape_of(a.ct)) - 2), *left)) if any(left) else grown
