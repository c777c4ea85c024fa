"""Convolutions and matrix products, forward and transposed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._elementwise import binary
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.operators._slicing import insert_zeros
from bcos_sdk.exporters.operators._windows import Pair, output_padding, spell_window, unreached
from bcos_sdk.exporters.program import Program, bind, pair, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["LINEAR_MAPS", "conv_transpose", "flipped_conv"]

aten = torch.ops.aten


def conv_transpose(
    ct: Tensor, weight: Tensor, stride: Pair, padding: Pair, output_padding: Pair, dilation: Pair, groups: int
) -> Tensor:
    """The transpose of conv2d with this weight. `output_padding` restores rows and columns that the stride skipped."""
    out = F.conv_transpose2d(ct.flatten(0, -4), weight, None, stride, padding, output_padding, groups, dilation)
    return out.reshape(*ct.shape[:-3], *out.shape[1:])


def flipped_conv(ct: Tensor, weight: Tensor, padding: Pair, dilation: Pair, groups: int) -> Tensor:
    """conv2d at stride one with a flipped weight: rows and columns reversed, input and output channels swapped."""
    out = F.conv2d(ct.flatten(0, -4), _flip(weight, groups), None, 1, padding, dilation, groups)
    return out.reshape(*ct.shape[:-3], *out.shape[1:])


def _flip(weight: Tensor, groups: int) -> Tensor:
    """[g·o, i, kh, kw] → [g·i, o, kh, kw], rows and columns reversed."""
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return grouped.transpose(1, 2).flatten(0, 1).flip(2, 3)


# -------------------------------------------------------------------------------------------------- transpose rules


def _transpose_conv2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.weight in t.live:
        raise t.refusal("its filters are live")
    if a.bias is not None:
        t.add_bias(a.bias, t.call(aten.sum.dim_IntList, ct, [t.axis(2), t.axis(3)]), sample_shape(node)[:1])
    stride, padding, dilation = pair(a.stride), pair(a.padding), pair(a.dilation)
    size, kernel = pair(sample_shape(a.input)[1:]), pair(shape_of(a.weight)[2:])
    left = unreached(size, kernel, stride, padding, dilation)
    if max(stride) > 1 and max(dilation) > 1:
        # TensorRT supports a stride or a dilation, not both, so the zeros of the stride are inserted explicitly.
        for axis, (length, step, rest) in enumerate(zip(sample_shape(node)[1:], stride, left, strict=True), 2):
            ct = t.call(insert_zeros, ct, t.axis(axis), step, 0, (length - 1) * step + 1 + rest)
        stride, left = (1, 1), (0, 0)
    t.add(a.input, t.call(conv_transpose, ct, a.weight, stride, padding, left, dilation, a.groups))


def _transpose_linear(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.weight in t.live:
        raise t.refusal("its weights are live")
    if a.bias is not None:
        t.add_bias(a.bias, ct, sample_shape(node))
    t.add(a.input, t.call(aten.matmul.default, ct, a.weight))


def _transpose_matmul(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """y = x A: ct ↦ ct Aᵀ; y = A x: ct ↦ Aᵀ ct."""
    a = bind(node)
    if a.self in t.live and a.other in t.live:
        raise t.refusal("it multiplies two live matrices")
    rank = len(shape_of(node))
    live, frozen = (a.self, a.other) if a.self in t.live else (a.other, a.self)
    if min(len(shape_of(live)), len(shape_of(frozen))) < 2:
        raise t.refusal("it multiplies a matrix and a vector; give the vector a second axis")
    turned = _swap_last_axes(t, frozen, rank)
    operands = (ct, turned) if live is a.self else (turned, ct)
    product = t.call(aten.matmul.default, *operands)
    t.add(live, t.sum_to(product, live, (*sample_shape(node)[:-2], *sample_shape(live)[-2:])))


def _swap_last_axes(t: Transposition, frozen: fx.Node, rank: int) -> fx.Node:
    matrix = t.broadcast_frozen(frozen, rank)
    axes = list(range(len(shape_of(frozen)) + (matrix is not frozen)))
    return t.call(aten.permute.default, matrix, [*axes[:-2], axes[-1], axes[-2]])


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_conv2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    inputs = [a.input, a.weight] + ([] if a.bias is None else [a.bias])
    return e.op("Conv", *inputs, **spell_window(a.stride, a.padding, a.dilation), group=a.groups)


def _spell_linear(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    out = e.op("MatMul", a.input, e.op("Transpose", a.weight, perm=[1, 0]))
    return out if a.bias is None else e.op("Add", out, a.bias)


def _spell_conv_transpose(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    sliding = spell_window(a.stride, a.padding, a.dilation) | output_padding(a.output_padding)
    return _spell_folded(e, node, a.ct, "ConvTranspose", a.weight, **sliding, group=a.groups)


def _spell_flipped_conv(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    weight = _spell_flip(e, a.weight, a.groups)
    return _spell_folded(e, node, a.ct, "Conv", weight, **spell_window(1, a.padding, a.dilation), group=a.groups)


def _spell_flip(e: Emitter, weight: fx.Node, groups: int) -> str:
    """`_flip` as ONNX operators on a constant. Runtimes fold them when they load the graph."""
    outputs, inputs, height, width = shape_of(weight)
    turned = e.value(weight)
    if groups == 1:
        turned = e.op("Transpose", turned, perm=[1, 0, 2, 3])
    elif inputs > 1 or outputs > groups:
        turned = e.op("Reshape", turned, e.ints(groups, outputs // groups, inputs, height, width))
        turned = e.op("Transpose", turned, perm=[0, 2, 1, 3, 4])
        turned = e.op("Reshape", turned, e.ints(groups * inputs, outputs // groups, height, width))
    if (height, width) == (1, 1):
        return turned
    first, last = e.ints(-1, -1), e.ints(-height - 1, -width - 1)
    return e.op("Slice", turned, first, last, e.ints(2, 3), e.ints(-1, -1))


def _spell_folded(e: Emitter, node: fx.Node, ct: fx.Node, kind: str, weight: Any, **attributes: Any) -> str:
    """Fold the leading axes of the cotangent into one, convolve, and unfold them."""
    folded = e.fold(ct, shape_of(ct)[-3:])
    return e.unfold(e.op(kind, folded, weight, **attributes), shape_of(node)[-3:])


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_bmm(program: Program, node: fx.Node) -> None:
    a = bind(node)
    program.replace(node, aten.matmul.default, a.self, a.mat2)


_PRODUCT, _PRODUCT_WITH_BIAS = Trait.PRODUCT, Trait.PRODUCT | Trait.HAS_BIAS

LINEAR_MAPS = (
    Operator(aten.conv2d.default, Kind.LINEAR, _spell_conv2d, _transpose_conv2d, traits=_PRODUCT_WITH_BIAS),
    Operator(aten.linear.default, Kind.LINEAR, _spell_linear, _transpose_linear, traits=_PRODUCT_WITH_BIAS),
    Operator(aten.matmul.default, Kind.LINEAR, binary("MatMul"), _transpose_matmul, traits=_PRODUCT),
    Operator(conv_transpose, Kind.EXPLAIN, _spell_conv_transpose, traits=_PRODUCT),
    Operator(flipped_conv, Kind.EXPLAIN, _spell_flipped_conv, traits=_PRODUCT),
    Operator(aten.bmm.default, Kind.SPELLING, rewrite=_rewrite_bmm),
)
