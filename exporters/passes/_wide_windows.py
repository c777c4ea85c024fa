"""Split a convolution whose window covers a small map, such as the classifier of VGG.

split_wide_windows  conv(x, w) = Σ over the taps (i, j) of the window of w_ij · x, moved by (i − p, j − p)
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx

from bcos_sdk.exporters.program import Program, bind, is_constant, pair, path_of, shape_of

__all__ = ["split_wide_windows"]

aten = torch.ops.aten

_LEAST_WEIGHTS = 1 << 24
_MOST_POSITIONS = 14**2


def split_wide_windows(program: Program) -> int:
    """conv(x, w) = Σ w_ij · x, moved by (i − p, j − p), over all taps (i, j) at which the window meets the map.

    A convolution reads its weights once for each row of the map. If they fit into no cache, and the map has few
    positions, this takes longer than the multiplications. As a sum of 1×1 convolutions each weight is read once.
    """
    split = 0
    for node in list(program.graph.find_nodes(op="call_function", target=aten.conv2d.default)):
        a = bind(node)
        kernel, positions = shape_of(a.weight)[2:], prod(shape_of(a.input)[2:])
        is_plain = is_constant(a.weight) and a.bias is None and a.groups == 1
        has_unit_steps = pair(a.stride) == (1, 1) and pair(a.dilation) == (1, 1)
        if not (is_plain and has_unit_steps and prod(kernel) > 1 and positions <= _MOST_POSITIONS):
            continue
        if prod(shape_of(a.weight)) < _LEAST_WEIGHTS:
            continue
        program.substitute(node, _sum_over_taps(program, node, a))
        split += 1
    return split


class _Move(NamedTuple):
    """What a tap reads along one axis: the input without these elements, and where its result lies in the output."""

    cut: tuple[int, int]
    around: tuple[int, int]


def _sum_over_taps(program: Program, node: fx.Node, a: Any) -> fx.Node:
    weight, path = program.value_of(a.weight), path_of(a.weight)
    sizes = zip(shape_of(a.input)[2:], shape_of(node)[2:], pair(a.padding), strict=True)
    of_rows, of_columns = (
        [_move(tap, *axis) for tap in range(taps)] for axis, taps in zip(sizes, weight.shape[2:], strict=True)
    )
    total = None
    for i, rows in enumerate(of_rows):
        for j, columns in enumerate(of_columns):
            if rows is None or columns is None:
                continue
            tap = program.constant(path, weight[:, :, i : i + 1, j : j + 1].contiguous())
            cut = [-width for width in (*columns.cut, *rows.cut)]
            part = program.compute(node, aten.pad.default, a.input, cut) if any(cut) else a.input
            part = program.compute(node, aten.conv2d.default, part, tap)
            around = [*columns.around, *rows.around]
            part = program.compute(node, aten.pad.default, part, around) if any(around) else part
            total = part if total is None else program.compute(node, aten.add.Tensor, total, part)
    assert total is not None, "at least one tap meets the map, since the convolution has an output"
    return total


def _move(tap: int, size: int, outputs: int, padding: int) -> _Move | None:
    """Output o reads element o + tap − padding. None if no output reads an element of the map."""
    first, end = max(0, padding - tap), min(outputs, size + padding - tap)
    if first >= end:
        return None
    start = first + tap - padding
    return _Move((start, size - start - (end - first)), (first, outputs - end))
