"""Selections: maxima, sorted values and other elements that a frozen index picks. With the index they are linear."""

from __future__ import annotations

import operator
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import along_axes, per_map
from bcos_sdk.exporters.operators._moves import rewrite_move, take
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.operators._piecewise import keep_where
from bcos_sdk.exporters.operators._reshaping import positive_axes
from bcos_sdk.exporters.operators._windows import Pair, output_padding, spell_window, unreached
from bcos_sdk.exporters.program import Program, bind, is_constant, pair, path_of, reshape_sample, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["CHOICES"]

aten = torch.ops.aten


def is_first_largest(x: Tensor, axis: int) -> Tensor:
    """True at the largest value along the axis; among equal values, at the first."""
    steps = torch.arange(x.shape[axis]).view(-1, *[1] * (x.ndim - axis - 1))
    return x.argmax(axis, keepdim=True) == steps


def add_at(ct: Tensor, index: Tensor, axis: int, size: int) -> Tensor:
    """The transpose of a gather along an axis of length `size`: each cotangent is added at its index."""
    steps = torch.arange(size).view(-1, *[1] * (ct.ndim - axis))
    return keep_where(ct.unsqueeze(axis), index.unsqueeze(axis) == steps).sum(axis + 1)


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


def _transpose_max(t: Transposition, node: fx.Node, cts: dict[int, fx.Node]) -> None:
    """MaxOut: the largest unit gets the whole cotangent; among equal units, the first."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    sample = list(sample_shape(a.self))
    sample[axis - 1] = 1
    ct = t.reshape(cts[0], tuple(sample))
    winner = t.call(is_first_largest, a.self, axis)
    t.add(a.self, t.call(keep_where, ct, t.broadcast_over_targets(winner)))


def _transpose_amax(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """Values that are equal to the largest share the cotangent."""
    a = bind(node)
    axes = positive_axes(a.dim, a.self)
    sample = tuple(1 if 1 + i in axes else size for i, size in enumerate(sample_shape(a.self)))
    largest = t.call(reshape_sample, node, sample, 1)
    wins = t.call(aten.to.dtype, t.call(aten.eq.Tensor, a.self, largest), a.self.meta["val"].dtype)
    share = t.call(aten.div.Tensor, wins, t.call(aten.sum.dim_IntList, wins, axes, True))
    t.add(a.self, t.call(aten.mul.Tensor, t.reshape(ct, sample), t.broadcast_over_targets(share)))


def _transpose_gather(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    axis = a.dim % len(shape_of(node))
    index = t.broadcast_over_targets(a.index)
    t.add(a.self, t.call(add_at, ct, index, t.axis(axis), shape_of(a.self)[axis]))


def _transpose_max_pool2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """The largest value of each window gets the whole cotangent; among equal values, the first."""
    a = bind(node)
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


def _spell_amax(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kind = "ReduceMax" if node.target is aten.amax.default else "ReduceMin"
    return e.op(kind, a.self, e.ints(*positive_axes(a.dim, a.self)), keepdims=int(a.keepdim))


def _spell_argmax(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("ArgMax", a.self, axis=positive_axes(a.dim, a.self)[0], keepdims=int(a.keepdim))


def _spell_topk(e: Emitter, node: fx.Node) -> list[str]:
    """The indices alone: capture reads the values with a gather."""
    a = bind(node)
    (axis,) = positive_axes(a.dim, a.self)
    return ["", e.pick("TopK", 1, a.self, e.ints(a.k), axis=axis, largest=int(a.largest))]


def _spell_gather(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("GatherElements", a.self, a.index, axis=positive_axes(a.dim, a.self)[0])


def _spell_add_at(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    steps = torch.arange(a.size).view(-1, *[1] * (len(shape_of(a.ct)) - a.axis))
    is_here = e.op("Equal", e.op("Unsqueeze", a.index, e.ints(a.axis)), e.constant(steps, "steps"))
    placed = e.op("Where", is_here, e.op("Unsqueeze", a.ct, e.ints(a.axis)), 0.0)
    return e.op("ReduceSum", placed, e.ints(a.axis + 1), keepdims=0)


def _spell_max_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    sliding = spell_window(a.stride or kernel, a.padding, a.dilation)
    return e.op("MaxPool", a.self, kernel_shape=[*kernel], **sliding, ceil_mode=int(a.ceil_mode))


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


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_gather(program: Program, node: fx.Node) -> None:
    """An index that is the same for every image moves elements. Otherwise the other axes must have their full size."""
    a = bind(node)
    if is_constant(a.index):
        rewrite_move(program, node)
        return
    axis = a.dim % len(shape_of(node))
    for other, (length, full) in enumerate(zip(shape_of(a.index), shape_of(a.self), strict=True)):
        if other != axis and length != full:
            raise CaptureError(
                f"operator {node.target} in module '{path_of(node)}' reads {length} of {full} elements of axis {other}",
                source=path_of(node),
                hint="Slice the input first, so that only the gathered axis has another length.",
            )


def _rewrite_minimum(program: Program, node: fx.Node) -> None:
    """min(x) = −max(−x), with the same index."""
    a = bind(node)
    negative = program.compute(node, aten.neg.default, a.self)
    largest = program.compute(node, aten.max.dim, negative, a.dim, a.keepdim)
    for getitem in list(node.users):
        value = program.compute(getitem, operator.getitem, largest, getitem.args[1])
        program.substitute(
            getitem, program.compute(getitem, aten.neg.default, value) if getitem.args[1] == 0 else value
        )
    program.graph.erase_node(node)


def _rewrite_argmin(program: Program, node: fx.Node) -> None:
    a = bind(node)
    program.replace(node, aten.argmax.default, program.compute(node, aten.neg.default, a.self), a.dim, a.keepdim)


def _rewrite_sorted(program: Program, node: fx.Node) -> None:
    """Sorted, largest, k-th and median values are gathered by their indices."""
    a = bind(node)
    shape = shape_of(a.self)
    axis = a.dim % len(shape)
    size = shape[axis]
    if node.target is aten.topk.default and all(getitem.args[1] == 1 for getitem in node.users):
        return
    is_one = node.target in (aten.kthvalue.default, aten.median.dim)
    count = (size + 1) // 2 if node.target is aten.median.dim else getattr(a, "k", size)
    largest = not is_one and getattr(a, "largest", getattr(a, "descending", False))
    found = program.compute(node, aten.topk.default, a.self, count, axis, largest)
    index = program.compute(node, operator.getitem, found, 1)
    if is_one:
        index = program.compute(node, aten.slice.Tensor, index, axis, count - 1, count)
    values = program.compute(node, aten.gather.default, a.self, axis, index)
    for getitem in list(node.users):
        result = values if getitem.args[1] == 0 else index
        if shape_of(getitem) != shape_of(result):
            result = program.compute(getitem, aten.reshape.default, result, list(shape_of(getitem)))
        program.substitute(getitem, result)
    program.graph.erase_node(node)


def _rewrite_whole_maximum(program: Program, node: fx.Node) -> None:
    """The largest or smallest of all elements."""
    a = bind(node)
    target = aten.amax.default if node.target is aten.max.default else aten.amin.default
    program.replace(node, target, a.self, list(range(len(shape_of(a.self)))), False)


def _rewrite_max_pool2d(program: Program, node: fx.Node) -> None:
    """Pools with gaps or an incomplete last window take their windows by index. Simple ones stay."""
    a = bind(node)
    kernel, dilation, padding = pair(a.kernel_size), pair(a.dilation), pair(a.padding)
    stride = pair(a.stride or kernel)
    has_index = node.target is not aten.max_pool2d.default
    if dilation == (1, 1) and not a.ceil_mode:
        if has_index:
            pooled = program.compute(node, aten.max_pool2d.default, a.self, kernel, stride, padding)
            _use_first_result(program, node, pooled)
        return
    result = node.meta["val"][0] if has_index else node.meta["val"]
    windows = [
        [
            [
                place
                for tap in range(kernel[i])
                if 0 <= (place := step * stride[i] - padding[i] + tap * dilation[i]) < shape_of(a.self)[-2 + i]
            ]
            for step in range(result.shape[-2 + i])
        ]
        for i in range(2)
    ]
    _use_first_result(program, node, _largest_of_windows(program, node, a.self, *windows))


def _rewrite_adaptive_max_pool2d(program: Program, node: fx.Node) -> None:
    """Window i of n covers the elements from ⌊i·size/n⌋ to ⌈(i+1)·size/n⌉."""
    a = bind(node)
    sizes, counts = shape_of(a.self)[-2:], a.output_size
    windows = [
        [list(range(i * size // count, -(-(i + 1) * size // count))) for i in range(count)]
        for size, count in zip(sizes, counts, strict=True)
    ]
    _use_first_result(program, node, _largest_of_windows(program, node, a.self, *windows))


def _largest_of_windows(
    program: Program, node: fx.Node, x: fx.Node, rows: list[list[int]], columns: list[list[int]]
) -> fx.Node:
    """The maximum over windows, each a set of rows times a set of columns. Shorter ones repeat their first element."""
    outer = shape_of(x)[:-2]
    taken = x
    for axis, windows in ((len(outer), rows), (len(outer) + 1, columns)):
        longest = max(map(len, windows))
        filled = [window + window[:1] * (longest - len(window)) for window in windows]
        index = program.constant(path_of(node), torch.tensor(filled).flatten())
        index.meta["anonymous"] = True
        taken = program.compute(node, take, taken, axis, index, False)
    shape = [*outer, len(rows), max(map(len, rows)), len(columns), max(map(len, columns))]
    n = len(outer)
    taken = program.compute(node, aten.reshape.default, taken, shape)
    taken = program.compute(node, aten.permute.default, taken, [*range(n), n, n + 2, n + 1, n + 3])
    taken = program.compute(
        node, aten.reshape.default, taken, [*outer, len(rows), len(columns), shape[n + 1] * shape[n + 3]]
    )
    largest = program.compute(node, aten.max.dim, taken, n + 2, False)
    return program.compute(node, operator.getitem, largest, 0)


def _use_first_result(program: Program, node: fx.Node, value: fx.Node) -> None:
    """Replace the operator, or the first of its two results, by a value. The second one, an index, must be unused."""
    if not isinstance(node.meta["val"], (tuple, list)):
        program.substitute(node, value)
        return
    for getitem in list(node.users):
        if getitem.args[1] != 0:
            raise CaptureError(
                f"operator {node.target} in module '{path_of(node)}' returns indices that are used",
                source=path_of(node),
                hint="Use the pool without return_indices.",
            )
        program.substitute(getitem, value)
    program.graph.erase_node(node)


_SORTED = (aten.kthvalue.default, aten.median.dim, aten.sort.default, aten.sort.stable)

CHOICES = (
    Operator(aten.max.dim, Kind.CHOICE, _spell_max, _transpose_max, along_axes),
    Operator(aten.amax.default, Kind.CHOICE, _spell_amax, _transpose_amax, along_axes),
    Operator(aten.amin.default, Kind.CHOICE, _spell_amax, _transpose_amax, along_axes),
    Operator(aten.gather.default, Kind.CHOICE, _spell_gather, _transpose_gather, along_axes, _rewrite_gather),
    Operator(
        aten.max_pool2d.default, Kind.CHOICE, _spell_max_pool2d, _transpose_max_pool2d, per_map, _rewrite_max_pool2d
    ),
    Operator(aten.argmax.default, Kind.FROZEN, _spell_argmax, batch=along_axes),
    Operator(aten.topk.default, Kind.FROZEN, _spell_topk, batch=along_axes, rewrite=_rewrite_sorted),
    Operator(add_at, Kind.EXPLAIN, _spell_add_at),
    Operator(is_first_largest, Kind.EXPLAIN, _spell_is_first_largest),
    Operator(window_winners, Kind.EXPLAIN, _spell_window_winners),
    Operator(scatter_windows, Kind.EXPLAIN, _spell_scatter_windows),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_sorted) for target in _SORTED),
    Operator(aten.min.dim, Kind.SPELLING, rewrite=_rewrite_minimum),
    Operator(aten.argmin.default, Kind.SPELLING, rewrite=_rewrite_argmin),
    Operator(aten.max.default, Kind.SPELLING, rewrite=_rewrite_whole_maximum),
    Operator(aten.min.default, Kind.SPELLING, rewrite=_rewrite_whole_maximum),
    Operator(aten.max_pool2d_with_indices.default, Kind.SPELLING, rewrite=_rewrite_max_pool2d),
    Operator(aten.adaptive_max_pool2d.default, Kind.SPELLING, rewrite=_rewrite_adaptive_max_pool2d),
)
