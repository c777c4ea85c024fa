"""Convolutions and matrix products, forward and transposed."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.batching import Batching
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import matrix_product, rows
from bcos_sdk.exporters.operators._elementwise import binary
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.operators._slicing import insert_zeros
from bcos_sdk.exporters.operators._windows import Pair, output_padding, spell_window, unreached
from bcos_sdk.exporters.program import Program, bind, is_constant, pair, path_of, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["LINEAR_MAPS", "conv_transpose", "flipped_conv"]

aten = torch.ops.aten

_DYNAMIC_FILTERS = "Write it as a matrix product of patches (torch.nn.functional.unfold) and filters."


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


def folded_conv(ct: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Tensor:
    """conv2d of a cotangent: the transpose of a transposed convolution."""
    out = F.conv2d(ct.flatten(0, -4), weight, None, stride, padding, dilation, groups)
    return out.reshape(*ct.shape[:-3], *out.shape[1:])


def _transpose_conv_transpose(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    t.add(a.ct, t.call(folded_conv, ct, a.weight, a.stride, a.padding, a.dilation, a.groups))


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


def _spell_folded_conv(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _spell_folded(
        e, node, a.ct, "Conv", a.weight, **spell_window(a.stride, a.padding, a.dilation), group=a.groups
    )


def conv3d_transpose(
    ct: Tensor, weight: Tensor, stride: list[int], padding: list[int], left: list[int], dilation: list[int], groups: int
) -> Tensor:
    """The transpose of conv3d with this weight. `left` restores what the stride skipped."""
    out = F.conv_transpose3d(ct.flatten(0, -5), weight, None, stride, padding, left, groups, dilation)
    return out.reshape(*ct.shape[:-4], *out.shape[1:])


def _transpose_conv3d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    if a.bias is not None:
        t.add_bias(a.bias, t.call(aten.sum.dim_IntList, ct, [t.axis(i) for i in (2, 3, 4)]), sample_shape(node)[:1])
    stride, padding, dilation = (_sizes(one, 3) for one in (a.stride, a.padding, a.dilation))
    sizes = zip(sample_shape(a.input)[1:], shape_of(a.weight)[2:], stride, padding, dilation, strict=True)
    left = [(size + 2 * p - d * (k - 1) - 1) % s for size, k, s, p, d in sizes]
    t.add(a.input, t.call(conv3d_transpose, ct, a.weight, stride, padding, left, dilation, a.groups))


def _spell_conv3d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    inputs = [a.input, a.weight] + ([] if a.bias is None else [a.bias])
    stride, padding, dilation = (_sizes(one, 3) for one in (a.stride, a.padding, a.dilation))
    return e.op("Conv", *inputs, strides=stride, pads=padding * 2, dilations=dilation, group=a.groups)


def _spell_conv3d_transpose(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    folded = e.fold(a.ct, shape_of(a.ct)[-4:])
    window = {"strides": a.stride, "pads": a.padding * 2, "dilations": a.dilation, "output_padding": a.left}
    return e.unfold(e.op("ConvTranspose", folded, a.weight, **window, group=a.groups), shape_of(node)[-4:])


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
    """Fold the leading axes of the cotangent into one, convolve, and unfold them. A value has one such axis already."""
    if len(shape_of(ct)) == 4:
        return e.op(kind, ct, weight, **attributes)
    folded = e.fold(ct, shape_of(ct)[-3:])
    return e.unfold(e.op(kind, folded, weight, **attributes), shape_of(node)[-3:])


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_product(program: Program, node: fx.Node) -> None:
    program.replace(node, aten.matmul.default, *node.args[:2])


def _rewrite_linear(program: Program, node: fx.Node) -> None:
    """With weights that depend on the image, it is a matrix product."""
    a = bind(node)
    if is_constant(a.weight):
        return
    turned = program.compute(node, aten.permute.default, a.weight, [1, 0])
    product = program.compute(node, aten.matmul.default, a.input, turned)
    program.substitute(node, product if a.bias is None else program.compute(node, aten.add.Tensor, product, a.bias))


def _rewrite_convolution(program: Program, node: fx.Node) -> None:
    """Every convolution is one of two operators, conv2d or conv3d, or their transposes; a bias is added afterwards."""
    a = bind(node)
    x, weight = a.input, a.weight
    if not is_constant(weight):
        raise CaptureError(
            f"operator {node.target} in module '{path_of(node)}' has filters that depend on the image",
            source=path_of(node),
            hint=_DYNAMIC_FILTERS,
        )
    rank = len(shape_of(weight)) - 2
    transposed = getattr(a, "transposed", node.target in _TRANSPOSED)
    stride, dilation = _sizes(a.stride, rank), _sizes(a.dilation, rank)
    padding, output_padding = _sizes(a.padding, rank), _sizes(getattr(a, "output_padding", 0), rank)
    value = program.value_of(weight)
    if is_line := rank == 1:
        stride, dilation = [1, *stride], [1, *dilation]
        padding, output_padding = [0, *padding], [0, *output_padding]
        value, rank = value.unsqueeze(2), 2
        x = program.compute(node, aten.reshape.default, x, [*shape_of(x)[:-1], 1, shape_of(x)[-1]])
    constant = weight if value is program.value_of(weight) else program.constant(path_of(weight), value)
    window = (stride, padding, dilation)
    if transposed:
        if rank != 2:
            raise CaptureError(
                f"operator {node.target} in module '{path_of(node)}' is a transposed convolution in 3-D",
                source=path_of(node),
                hint="Transposed convolutions are supported in one and two dimensions.",
            )
        options = (tuple(stride), tuple(padding), tuple(output_padding), tuple(dilation), a.groups)
        result = program.compute(node, conv_transpose, x, constant, *options)
        if a.bias is not None:
            bias = program.constant(path_of(a.bias), program.value_of(a.bias).view(-1, 1, 1))
            result = program.compute(node, aten.add.Tensor, result, bias)
    else:
        target = aten.conv2d.default if rank == 2 else aten.conv3d.default
        result = program.compute(node, target, x, constant, a.bias, *window, a.groups)
    if is_line:
        result = program.compute(node, aten.reshape.default, result, list(shape_of(node)))
    program.substitute(node, result)


def _rewrite_filters(program: Program, node: fx.Node) -> None:
    """Filters that depend on the image are a matrix that the patches are multiplied by."""
    a = bind(node)
    rows, inputs, *kernel = shape_of(a.weight)
    if is_constant(a.weight) or shape_of(a.input)[0] != 1:
        return
    size = inputs * prod(kernel)
    stride, padding, dilation = (_sizes(one, 2) for one in (a.stride, a.padding, a.dilation))
    patches = program.compute(node, aten.im2col.default, a.input, kernel, dilation, padding, stride)
    patches = program.compute(node, aten.reshape.default, patches, [1, a.groups, size, -1])
    filters = program.compute(node, aten.reshape.default, a.weight, [1, a.groups, rows // a.groups, size])
    result = program.compute(node, aten.matmul.default, filters, patches)
    result = program.compute(node, aten.reshape.default, result, list(shape_of(node)))
    if a.bias is not None:
        bias = program.compute(node, aten.reshape.default, a.bias, [1, rows, 1, 1])
        result = program.compute(node, aten.add.Tensor, result, bias)
    program.substitute(node, result)


def _sizes(value: Any, rank: int) -> list[int]:
    """One number per axis; aten writes one number where all are equal."""
    listed = [value] if isinstance(value, int) else list(value)
    return listed * rank if len(listed) == 1 else listed


def _batch_of_convolution(b: Batching, node: fx.Node) -> fx.Node:
    """Several images in the batch axis of one image, such as windows, are a third axis with a window of one."""
    source, weight = node.args[:2]
    assert isinstance(source, fx.Node)
    assert isinstance(weight, fx.Node)
    shape = shape_of(source)
    rank = len(shape_of(weight)) - 2
    if not is_constant(weight):
        raise b.refusal("its filters depend on the image", _DYNAMIC_FILTERS)
    others = fx.map_arg(node.args[2:], b.own)
    if len(shape) == rank + 1:
        result = b.call(node.target, b.full(source), b.own(weight), *others, **node.kwargs)  # type: ignore[arg-type]
        return b.settle(result, shape_of(node))
    if b.keeps_first(shape):
        return b.call(node.target, b.own(source), b.own(weight), *others, **node.kwargs)  # type: ignore[arg-type]
    if node.target is not aten.conv2d.default:
        raise b.refusal("it convolves several images for each image", "Keep the batch as the first axis of its input.")
    a = bind(node)
    flat = b.new.constant(path_of(weight), b.old.value_of(weight).unsqueeze(2))
    turned = b.call(aten.permute.default, b.own(source), [0, 2, 1, 3, 4])
    window = ([1, *pair(a.stride)], [0, *pair(a.padding)], [1, *pair(a.dilation)])
    result = b.call(aten.conv3d.default, turned, flat, b.own(a.bias), *window, a.groups)
    return b.call(aten.permute.default, result, [0, 2, 1, 3, 4])


_PRODUCTS = (aten.bmm.default, aten.dot.default, aten.mm.default, aten.mv.default)
_TRANSPOSED = (aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
_CONVOLUTIONS = (aten.conv1d.default, aten.convolution.default, *_TRANSPOSED)
_PRODUCT, _PRODUCT_WITH_BIAS = Trait.PRODUCT, Trait.PRODUCT | Trait.HAS_BIAS

LINEAR_MAPS = (
    Operator(
        aten.conv2d.default,
        Kind.LINEAR,
        _spell_conv2d,
        _transpose_conv2d,
        _batch_of_convolution,
        _rewrite_filters,
        traits=_PRODUCT_WITH_BIAS,
    ),
    Operator(
        aten.linear.default,
        Kind.LINEAR,
        _spell_linear,
        _transpose_linear,
        rows,
        _rewrite_linear,
        traits=_PRODUCT_WITH_BIAS,
    ),
    Operator(aten.matmul.default, Kind.LINEAR, binary("MatMul"), _transpose_matmul, matrix_product, traits=_PRODUCT),
    Operator(
        conv_transpose,
        Kind.LINEAR,
        _spell_conv_transpose,
        _transpose_conv_transpose,
        _batch_of_convolution,
        traits=_PRODUCT,
    ),
    Operator(aten.conv3d.default, Kind.LINEAR, _spell_conv3d, _transpose_conv3d, _batch_of_convolution),
    Operator(conv3d_transpose, Kind.EXPLAIN, _spell_conv3d_transpose),
    Operator(flipped_conv, Kind.EXPLAIN, _spell_flipped_conv, traits=_PRODUCT),
    Operator(folded_conv, Kind.EXPLAIN, _spell_folded_conv, traits=_PRODUCT),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_product) for target in _PRODUCTS),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_convolution) for target in _CONVOLUTIONS),
)
