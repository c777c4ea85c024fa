"""Maxima, and the masks that say which value was the largest."""

from __future__ import annotations

from math import prod

import torch
from torch import fx

from bcos_sdk.exporters import _ops as ops
from bcos_sdk.exporters._emit import Emitter
from bcos_sdk.exporters._program import bind, pair, shape_of
from bcos_sdk.exporters.onnx_ops._table import extra_padding, positive, spells, unfold, window

aten = torch.ops.aten


@spells(ops.keep_where)
def keep_where(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Where", a.mask, a.ct, 0.0)


@spells(aten.max.dim)
def max_dim(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    (axis,) = positive(a.dim, a.self)
    largest = e.op("ReduceMax", a.self, e.ints(axis), keepdims=int(a.keepdim))
    wants_place = any(getitem.args[1] == 1 for getitem in node.users)
    return [largest, e.op("ArgMax", a.self, axis=axis, keepdims=int(a.keepdim)) if wants_place else ""]


@spells(aten.amax.default)
def amax(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("ReduceMax", a.self, e.ints(*positive(a.dim, a.self)), keepdims=int(a.keepdim))


@spells(ops.is_first_largest)
def is_first_largest(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _first_largest(e, e.value(a.x), a.axis, shape_of(a.x))


def _first_largest(e: Emitter, x: str, axis: int, shape: tuple[int, ...]) -> str:
    steps = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - axis - 1))
    return e.op("Equal", e.op("ArgMax", x, axis=axis, keepdims=1), e.constant(steps, "steps"))


@spells(aten.max_pool2d.default)
def max_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    sliding = window(a.stride or kernel, a.padding, a.dilation)
    return e.op("MaxPool", a.self, kernel_shape=[*kernel], **sliding, ceil_mode=int(a.ceil_mode))


@spells(ops.window_winners)
def window_winners(e: Emitter, node: fx.Node) -> str:
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


@spells(ops.scatter_windows)
def scatter_windows(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    count = prod(a.kernel)
    shares = e.op("Where", a.winners, e.op("Unsqueeze", a.ct, e.ints(len(shape_of(a.ct)) - 2)), 0.0)
    flat = e.op("Reshape", shares, e.ints(-1, count, *shape_of(a.ct)[-2:]))
    weight = e.constant(torch.eye(count).view(count, 1, *a.kernel), "windows")
    left = ops.unreached(a.size, a.kernel, a.stride, a.padding)
    grown = e.op("ConvTranspose", flat, weight, **window(a.stride, a.padding, 1), **extra_padding(left))
    return unfold(e, grown, node)
