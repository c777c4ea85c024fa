"""Max pools, forward and transposed. The largest value of each window gets the whole cotangent."""

from __future__ import annotations

import operator
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import per_map
from bcos_sdk.exporters.operators._choices import is_first_largest, spell_first_largest
from bcos_sdk.exporters.operators._moves import take
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.operators._piecewise import keep_where
from bcos_sdk.exporters.operators._windows import Pair, output_padding, spell_window, unreached
from bcos_sdk.exporters.program import Program, bind, pair, path_of, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["MAX_POOLS"]

aten = torch.ops.aten


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


def _transpose_max_pool2d(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """The largest value of each window gets the whole cotangent; among equal values, the first."""
    a = bind(node)
    kernel, padding = pair(a.kernel_size), pair(a.padding)
    window = (kernel, pair(a.stride or kernel), padding)
    winner = t.broadcast_over_targets(t.call(window_winners, a.self, *window))
    t.add(a.self, t.call(scatter_windows, ct, winner, *window, sample_shape(a.self)[1:]))


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_max_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    sliding = spell_window(a.stride or kernel, a.padding, a.dilation)
    return e.op("MaxPool", a.self, kernel_shape=[*kernel], **sliding, ceil_mode=int(a.ceil_mode))


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
    return spell_first_largest(e, e.op("Concat", *windows, axis=2), 2, shape_of(node))


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
        index = program.constant(path_of(node), torch.tensor(filled).flatten(), anonymous=True)
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


MAX_POOLS = (
    Operator(
        aten.max_pool2d.default, Kind.CHOICE, _spell_max_pool2d, _transpose_max_pool2d, per_map, _rewrite_max_pool2d
    ),
    Operator(window_winners, Kind.EXPLAIN, _spell_window_winners),
    Operator(scatter_windows, Kind.EXPLAIN, _spell_scatter_windows),
    Operator(aten.max_pool2d_with_indices.default, Kind.SPELLING, rewrite=_rewrite_max_pool2d),
    Operator(aten.adaptive_max_pool2d.default, Kind.SPELLING, rewrite=_rewrite_adaptive_max_pool2d),
)
