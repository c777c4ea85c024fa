"""Piecewise linear operators: maxima and ReLU. Once their choice is frozen as a mask they are linear."""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._elementwise import unary
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.operators._reshaping import positive_axes
from bcos_sdk.exporters.operators._windows import Pair, output_padding, spell_window, unreached
from bcos_sdk.exporters.program import bind, pair, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["CHOICES"]

aten = torch.ops.aten


def keep_where(ct: Tensor, mask: Tensor) -> Tensor:
    """The cotangent where the mask is true, zero elsewhere."""
    return torch.where(mask, ct, torch.zeros((), dtype=ct.dtype))


def is_first_largest(x: Tensor, axis: int) -> Tensor:
    """True at the largest value along the axis; among equal values, at the first."""
    steps = torch.arange(x.shape[axis]).view(-1, *[1] * (x.ndim - axis - 1))
    return x.argmax(axis, keepdim=True) == steps


def window_winners(x: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """[batch, channels, k², rows, columns]: which value of each window is its first largest."""
    padded = F.pad(x, (padding[1], padding[1], padding[0], padding[0]), value=torch.finfo(x.dtype).min)
    rows = (padded.shape[2] - kernel[0]) // stride[0] + 1
    columns = (padded.shape[3] - kernel[1]) // stride[1] + 1
    windows = [
        padded[
            :,
            :,
            i : i + (rows - 1) * stride[0] + 1 : stride[0],
            j : j + (columns - 1) * stride[1] + 1 : stride[1],
        ]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return is_first_largest(torch.stack(windows, dim=2), 2)


def scatter_windows(ct: Tensor, winners: Tensor, kernel: Pair, stride: Pair, padding: Pair, size: Pair) -> Tensor:
    """The transpose of a max pool: each cotangent goes to the winner of its window."""
    count = kernel[0] * kernel[1]
    shares = keep_where(ct.unsqueeze(-3), winners)
    weight = torch.eye(count, dtype=ct.dtype).view(count, 1, *kernel)
    left = unreached(size, kernel, stride, padding)
    grown = F.conv_transpose2d(shares.flatten(0, -4), weight, None, stride, padding, left)
    return grown.reshape(*ct.shape[:-2], *size)


# -------------------------------------------------------------------------------------------------- transpose rules


def _transpose_relu(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    positive = t.call(aten.gt.Scalar, node, 0)
    t.add(bind(node).self, t.call(keep_where, ct, t.broadcast_over_targets(positive)))


def _transpose_max(t: Transposition, node: fx.Node, cts: dict[int, fx.Node]) -> None:
    """MaxOut: the largest unit gets the whole cotangent; among equal units, the first."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    if axis == 0:
        raise t.refusal("it takes the maximum over the batch axis")
    sample = list(sample_shape(a.self))
    sample[axis - 1] = 1
    ct = t.reshape(cts[0], tuple(sample))
    winner = t.call(is_first_largest, a.self, axis)
    t.add(a.self, t.call(keep_where, ct, t.broadcast_over_targets(winner)))


def _transpose_max_pool2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """The largest value of each window gets the whole cotangent; among equal values, the first."""
    a = bind(node)
    if a.ceil_mode or pair(a.dilation) != (1, 1):
        raise t.refusal("max pools with ceil_mode or dilation are not supported")
    kernel, padding = pair(a.kernel_size), pair(a.padding)
    window = (kernel, pair(a.stride or kernel), padding)
    winner = t.broadcast_over_targets(t.call(window_winners, a.self, *window))
    t.add(a.self, t.call(scatter_windows, ct, winner, *window, sample_shape(a.self)[1:]))


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_max(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    (axis,) = positive_axes(a.dim, a.self)
    largest = e.op("ReduceMax", a.self, e.ints(axis), keepdims=int(a.keepdim))
    wants_index = any(getitem.args[1] == 1 for getitem in node.users)
    return [largest, e.op("ArgMax", a.self, axis=axis, keepdims=int(a.keepdim)) if wants_index else ""]


def _spell_max_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    sliding = spell_window(a.stride or kernel, a.padding, a.dilation)
    return e.op("MaxPool", a.self, kernel_shape=[*kernel], **sliding, ceil_mode=int(a.ceil_mode))


def _spell_keep_where(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Where", a.mask, a.ct, 0.0)


def _spell_is_first_largest(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _first_largest(e, e.value(a.x), a.axis, shape_of(a.x))


def _first_largest(e: Emitter, x: str, axis: int, shape: tuple[int, ...]) -> str:
    steps = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - axis - 1))
    return e.op("Equal", e.op("ArgMax", x, axis=axis, keepdims=1), e.constant(steps, "steps"))


def _spell_window_winners(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    (ph, pw), (sh, sw) = a.padding, a.stride
    rows, columns = shape_of(node)[-2:]
    lowest = torch.finfo(torch.float32).min
    padded = e.op("Pad", a.x, e.ints(0, 0, ph, pw, 0, 0, ph, pw), lowest) if ph or pw else e.value(a.x)
    windows = []
    for i in range(a.kernel[0]):
        for j in range(a.kernel[1]):
            ends = e.ints(i + (rows - 1) * sh + 1, j + (columns - 1) * sw + 1)
            window = e.op("Slice", padded, e.ints(i, j), ends, e.ints(2, 3), e.ints(sh, sw))
            windows.append(e.op("Unsqueeze", window, e.ints(2)))
    return _first_largest(e, e.op("Concat", *windows, axis=2), 2, shape_of(node))


def _spell_scatter_windows(e: Emitter, node: fx.Node) -> str:
    """Each winner is one channel of a transposed convolution with an identity kernel, which puts it in its place."""
    a = bind(node)
    count = prod(a.kernel)
    shares = e.op("Where", a.winners, e.op("Unsqueeze", a.ct, e.ints(len(shape_of(a.ct)) - 2)), 0.0)
    flat = e.op("Reshape", shares, e.ints(-1, count, *shape_of(a.ct)[-2:]))
    weight = e.constant(torch.eye(count).view(count, 1, *a.kernel), "windows")
    left = unreached(a.size, a.kernel, a.stride, a.padding)
    grown = e.op("ConvTranspose", flat, weight, **spell_window(a.stride, a.padding, 1), **output_padding(left))
    return e.to_cotangent(grown, shape_of(node)[-3:])


CHOICES = (
    Operator(aten.relu.default, Kind.CHOICE, unary("Relu"), _transpose_relu),
    Operator(aten.max.dim, Kind.CHOICE, _spell_max, _transpose_max),
    Operator(aten.max_pool2d.default, Kind.CHOICE, _spell_max_pool2d, _transpose_max_pool2d),
    Operator(keep_where, Kind.EXPLAIN, _spell_keep_where),
    Operator(is_first_largest, Kind.EXPLAIN, _spell_is_first_largest),
    Operator(window_winners, Kind.EXPLAIN, _spell_window_winners),
    Operator(scatter_windows, Kind.EXPLAIN, _spell_scatter_windows),
)
