"""Sums, means, variances, norms and average pools, forward and transposed."""

from __future__ import annotations

from math import ceil, inf, prod, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from onnx import TensorProto
from torch import Tensor, fx

from bcos_sdk.contract import Layout
from bcos_sdk.exporters.onnx import Emitter, Spelling
from bcos_sdk.exporters.operators._batch_rules import along_axes, per_map
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.operators._resampling import rewrite_average_pool
from bcos_sdk.exporters.operators._reshaping import positive_axes, spread
from bcos_sdk.exporters.operators._windows import Pair, output_padding, spell_window, unreached
from bcos_sdk.exporters.program import Program, bind, is_floating, pair, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["REDUCTIONS", "avg_pool_transpose", "repeat_average"]

aten = torch.ops.aten

_LONG_SUM = 1000  # a centred norm of 1024 values differs by 1.5e-5 if they are added up one after another
# One axis is split only if it is longer than the channels of nearly all published networks: splitting costs time.
_LONG_AXIS = {"ReduceMean": 1024, "ReduceSum": 2400}


def avg_pool_transpose(ct: Tensor, kernel: Pair, stride: Pair, padding: Pair, size: Pair) -> Tensor:
    """The transpose of a k×k average pool that counts its padding: spread each value over its window, divided by k².

    `size` is the size of the pool's input. Rows and columns that no window reached become zeros.
    """
    weight = ct.new_full((1, 1, *kernel), 1 / (kernel[0] * kernel[1]))
    left = unreached(size, kernel, stride, padding)
    grown = F.conv_transpose2d(ct.flatten(0, -3).unsqueeze(1), weight, None, stride, padding, left)
    return grown.reshape(*ct.shape[:-2], *size)


def repeat_average(ct: Tensor, kernel: Pair, size: Pair) -> Tensor:
    """Repeat each value over its window, divided by the window's size; zeros beyond the last window."""
    share = ct / (kernel[0] * kernel[1])
    blocks = share.repeat_interleave(kernel[0], dim=-2).repeat_interleave(kernel[1], dim=-1)
    return F.pad(blocks, (0, size[1] - blocks.shape[-1], 0, size[0] - blocks.shape[-2]))


# -------------------------------------------------------------------------------------------------- transpose rules


def _transpose_sum(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    _spread(t, a.self, a.dim, ct, is_mean=False)


def _transpose_mean(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    _spread(t, a.self, a.dim, ct, is_mean=True)


def _transpose_var_mean(t: Transposition, node: fx.Node, cts: dict[int, fx.Node]) -> None:
    if 0 in cts:
        raise t.refusal("its variance is not detached")
    a = bind(node)
    _spread(t, a.self, a.dim, cts[1], is_mean=True)


def _spread(t: Transposition, x: fx.Node, dims: list[int], ct: fx.Node, *, is_mean: bool) -> None:
    """Give every summand the cotangent of the sum, for a mean divided by the number of summands."""
    sample = sample_shape(x)
    reduced = {dim % len(shape_of(x)) - 1 for dim in dims}
    ct = t.reshape(ct, tuple(1 if i in reduced else n for i, n in enumerate(sample)))
    if is_mean:
        ct = t.call(aten.mul.Tensor, ct, 1 / prod(sample[i] for i in reduced))
    t.add(x, t.call(spread, ct, sample))


def _transpose_avg_pool2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    kernel, padding = pair(a.kernel_size), pair(a.padding)
    size = sample_shape(a.self)[1:]
    t.add(a.self, t.call(avg_pool_transpose, ct, kernel, pair(a.stride or kernel), padding, size))


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_reduction(kind: str) -> Spelling:
    def spell(e: Emitter, node: fx.Node) -> str:
        a = bind(node)
        return _in_steps(e, kind, e.value(a.self), positive_axes(a.dim, a.self), shape_of(a.self), keepdim=a.keepdim)

    return spell


def _in_steps(e: Emitter, kind: str, x: str, axes: list[int], shape: tuple[int, ...], *, keepdim: bool) -> str:
    """A sum or mean. Many elements are reduced in steps, because one long float32 sum loses more digits."""
    if len(axes) == 1 and shape[axes[0]] > _LONG_AXIS[kind]:
        return _of_long_axis(e, kind, x, axes[0], shape, keepdim=keepdim)
    if len(axes) == 1 or prod(shape[axis] for axis in axes) <= _LONG_SUM:
        return e.op(kind, x, e.ints(*axes), keepdims=int(keepdim))
    for axis in sorted(axes, reverse=True):
        x = _in_steps(e, kind, x, [axis], shape, keepdim=keepdim)
        shape = (*shape[:axis], *([1] if keepdim else []), *shape[axis + 1 :])
    return x


def _of_long_axis(e: Emitter, kind: str, x: str, axis: int, shape: tuple[int, ...], *, keepdim: bool) -> str:
    """Σ over one axis of n elements as about √n sums of about √n elements each. Zeros fill the last one."""
    count = shape[axis]
    width = ceil(sqrt(count))
    rows = ceil(count / width)
    if rows * width != count:
        ends = [rows * width - count if i == axis else 0 for i in range(len(shape))]
        x = e.op("Pad", x, e.ints(*[0] * len(shape), *ends))
    split = e.op("Reshape", x, e.ints(*[0] * axis, rows, width, *shape[axis + 1 :]))
    total = e.op("ReduceSum", split, e.ints(axis + 1), keepdims=0)
    total = e.op("ReduceSum", total, e.ints(axis), keepdims=int(keepdim))
    return e.op("Mul", total, 1 / count) if kind == "ReduceMean" else total


def _spell_vector_norm(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    axes, keepdims = e.ints(*positive_axes(a.dim, a.self)), int(a.keepdim)
    if a.ord in (1, 2):
        return e.op(f"ReduceL{a.ord:g}", a.self, axes, keepdims=keepdims)
    sizes = e.op("Abs", a.self)
    if a.ord in (inf, -inf):
        return e.op("ReduceMax" if a.ord > 0 else "ReduceMin", sizes, axes, keepdims=keepdims)
    if a.ord == 0:
        ones = e.op("Cast", e.op("Greater", sizes, 0.0), to=TensorProto.FLOAT)
        return e.op("ReduceSum", ones, axes, keepdims=keepdims)
    total = e.op("ReduceSum", e.op("Pow", sizes, float(a.ord)), axes, keepdims=keepdims)
    return e.op("Pow", total, 1 / a.ord)


def _spell_product(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("ReduceProd", a.self, e.ints(*positive_axes(a.dim, a.self)), keepdims=int(a.keepdim))


def _spell_any(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    numbers = e.op("Cast", a.self, to=TensorProto.INT32)
    found = e.op("ReduceMax", numbers, e.ints(*positive_axes(a.dim, a.self)), keepdims=int(a.keepdim))
    return e.op("Cast", found, to=TensorProto.BOOL)


def _spell_var(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _spell_variance(e, a, a.correction)[0]


def _spell_var_mean(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    return _spell_variance(e, a, a.correction)


def _spell_var_mean_dim(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    return _spell_variance(e, a, int(a.unbiased))


def _spell_variance(e: Emitter, a: Any, correction: float | None) -> list[str]:
    dims, shape = positive_axes(a.dim, a.self), shape_of(a.self)
    mean = _in_steps(e, "ReduceMean", e.value(a.self), dims, shape, keepdim=True)
    centred = e.op("Sub", a.self, mean)
    var = _in_steps(e, "ReduceMean", e.op("Mul", centred, centred), dims, shape, keepdim=a.keepdim)
    count = prod(shape[dim] for dim in dims)
    correction = 1 if correction is None else correction
    if correction:
        var = e.op("Mul", var, count / (count - correction))
    return [var, mean if a.keepdim else e.op("Squeeze", mean, e.ints(*dims))]


def _spell_avg_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    pooled = e.op(
        "AveragePool",
        a.self,
        kernel_shape=[*kernel],
        strides=[*pair(a.stride or kernel)],
        pads=[*pair(a.padding)] * 2,
        ceil_mode=int(a.ceil_mode),
        count_include_pad=int(a.count_include_pad),
    )
    return pooled if a.divisor_override is None else e.op("Mul", pooled, prod(kernel) / a.divisor_override)


def _spell_avg_pool_transpose(e: Emitter, node: fx.Node) -> str:
    """A transposed convolution with 1/k²: one group per channel in rows, channels folded into the batch in a grid."""
    a = bind(node)
    left = unreached(a.size, a.kernel, a.stride, a.padding)
    sliding = spell_window(a.stride, a.padding, 1) | output_padding(left)
    share = 1 / prod(a.kernel)
    if e.layout is Layout.ROWS:
        channels = shape_of(node)[1]
        weight = e.constant(torch.full((channels, 1, *a.kernel), share), "average")
        return e.op("ConvTranspose", a.ct, weight, **sliding, group=channels)
    flat = e.op("Reshape", a.ct, e.ints(-1, 1, *shape_of(a.ct)[-2:]))
    weight = e.constant(torch.full((1, 1, *a.kernel), share), "average")
    return e.to_cotangent(e.op("ConvTranspose", flat, weight, **sliding), shape_of(node)[-3:])


def _spell_repeat_average(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    *leading, channels, rows, columns = shape_of(a.ct)
    unchanged = [0] * len(leading)
    share = e.op("Mul", a.ct, 1 / prod(a.kernel))
    blocks = e.op("Reshape", share, e.ints(*unchanged, channels, rows, 1, columns, 1))
    blocks = e.op("Expand", blocks, e.ints(*[1] * len(leading), 1, 1, a.kernel[0], 1, a.kernel[1]))
    grown = e.op("Reshape", blocks, e.ints(*unchanged, channels, rows * a.kernel[0], columns * a.kernel[1]))
    left = [a.size[0] - rows * a.kernel[0], a.size[1] - columns * a.kernel[1]]
    return e.op("Pad", grown, e.ints(*[0] * (2 * len(shape_of(a.ct)) - 2), *left)) if any(left) else grown


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_whole(program: Program, node: fx.Node) -> None:
    """A reduction of all elements is one over all axes."""
    a = bind(node)
    program.replace(node, _WHOLE[node.target], a.self, list(range(len(shape_of(a.self)))))


def _rewrite_dtype(program: Program, node: fx.Node) -> None:
    """The dtype in which a reduction adds up does not matter here. A sum of integers is one of floats first."""
    a = bind(node)
    source = a.self
    axes = list(range(len(shape_of(source)))) if a.dim is None or a.dim == [] else a.dim
    if not is_floating(source):
        source = program.compute(node, aten.to.dtype, source, torch.float32)
    if source is not a.self or axes is not a.dim or a.dtype is not None:
        program.replace(node, node.target, source, axes, a.keepdim)  # type: ignore[arg-type]


_WHOLE: dict[Any, Any] = {aten.mean.default: aten.mean.dim, aten.sum.default: aten.sum.dim_IntList}
_AVERAGE_POOL = (_spell_avg_pool2d, _transpose_avg_pool2d, per_map, rewrite_average_pool)

REDUCTIONS = (
    Operator(
        aten.sum.dim_IntList, Kind.LINEAR, _spell_reduction("ReduceSum"), _transpose_sum, along_axes, _rewrite_dtype
    ),
    Operator(aten.mean.dim, Kind.LINEAR, _spell_reduction("ReduceMean"), _transpose_mean, along_axes, _rewrite_dtype),
    Operator(aten.var_mean.dim, Kind.LINEAR, _spell_var_mean_dim, _transpose_var_mean, along_axes),
    Operator(aten.var_mean.correction, Kind.LINEAR, _spell_var_mean, _transpose_var_mean, along_axes),
    Operator(aten.avg_pool2d.default, Kind.LINEAR, *_AVERAGE_POOL),
    Operator(aten.any.dim, Kind.FROZEN, _spell_any, batch=along_axes),
    Operator(aten.any.dims, Kind.FROZEN, _spell_any, batch=along_axes),
    Operator(aten.prod.dim_int, Kind.FROZEN, _spell_product, batch=along_axes),
    Operator(aten.var.correction, Kind.FROZEN, _spell_var, batch=along_axes),
    Operator(aten.linalg_vector_norm.default, Kind.FROZEN, _spell_vector_norm, batch=along_axes),
    Operator(avg_pool_transpose, Kind.EXPLAIN, _spell_avg_pool_transpose),
    Operator(repeat_average, Kind.EXPLAIN, _spell_repeat_average),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_whole) for target in _WHOLE),
)
