"""Replace transposed convolutions by ordinary ones, which CPU runtimes compute faster.

flip_convolutions  at stride one: conv(x, w)ᵀ = conv(·, w') with w' flipped in space and its channels swapped
split_phases       at stride s:   conv(x, w)ᵀ = pixel_shuffle(conv(·, w'), s), where w' has s² times the channels
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bcos_sdk.contract import Layout
from bcos_sdk.exporters.operators import conv_transpose, flipped_conv
from bcos_sdk.exporters.program import Program, bind, is_constant, is_uniform, path_of, shape_of

__all__ = ["flip_convolutions", "split_phases"]

aten = torch.ops.aten

_LARGEST_FLIPPED = 1 << 24
# Limit on the multiplications of the split convolution, with those by inserted zeros, relative to the original.
_MOST_WORK = 1.5


def flip_convolutions(program: Program) -> int:
    """conv(x, w)ᵀ at stride one = conv(·, w') with padding d·(k − 1) − p; w' is w flipped, its channels swapped.

    Operators inside the graph flip the weights when the runtime loads it, so the weights file has each weight once.
    Very large weights are not flipped, because that takes longer than loading the rest of the graph.
    """
    flipped = 0
    for node in list(program.graph.find_nodes(op="call_function", target=conv_transpose)):
        a = bind(node)
        kernel = shape_of(a.weight)[2:]
        padding = tuple(d * (k - 1) - p for k, p, d in zip(kernel, a.padding, a.dilation, strict=True))
        is_small = prod(shape_of(a.weight)) <= _LARGEST_FLIPPED
        if a.stride == (1, 1) and min(padding) >= 0 and is_small:
            program.replace(node, flipped_conv, a.ct, a.weight, padding, a.dilation, a.groups)
            flipped += 1
    return flipped


class _Axis(NamedTuple):
    """The convolution along one axis: its number of taps, and its padding before and after."""

    taps: int
    before: int
    after: int


def split_phases(program: Program) -> int:
    """conv(x, w)ᵀ at stride s = pixel_shuffle(conv(·, w'), s), where w' has s² times the channels and fewer taps.

    Along one axis, output s·m + a is the sum over q of tap s·q + a + p of w times element m − q of the cotangent. So
    each phase a has its own taps, one per q. This is faster for stems, whose few channels use only a part of a vector
    unit, and for windows that do not overlap, which become a matrix product. The pass skips convolutions for which too
    many taps would be zero. It applies only to the layout ROWS, where a cotangent has the shape of a feature map.
    """
    split = 0
    if program.layout is not Layout.ROWS:
        return split
    for node in list(program.graph.find_nodes(op="call_function", target=conv_transpose)):
        a = bind(node)
        axes = _axes(a)
        # Uniform weights stay as they are: the conversion to fp16 recognises sums by them.
        if axes is None or is_uniform(program.value_of(a.weight)):
            continue
        (stride, _), (rows, columns) = a.stride, axes
        weight = _phases(program.value_of(a.weight), stride, a.padding, axes)
        constant = program.constant(path_of(a.weight), weight)
        pads = [columns.before, columns.after, rows.before, rows.after]
        padded = program.insert(node, aten.pad.default, a.ct, pads) if any(pads) else a.ct
        phases = program.insert(node, aten.conv2d.default, padded, constant, None, [1, 1], [0, 0], [1, 1], 1)
        program.replace(node, aten.pixel_shuffle.default, phases, stride)
        split += 1
    return split


def _axes(a: Any) -> tuple[_Axis, _Axis] | None:
    """The convolution along rows and columns; None if it cannot be split or would take too much work."""
    kernel = shape_of(a.weight)[2:]
    is_plain = is_constant(a.weight) and a.groups == 1 and a.dilation == (1, 1) and a.stride[0] == a.stride[1] > 1
    if not is_plain:
        return None
    found = [_axis(*sizes) for sizes in zip(kernel, a.stride, a.padding, a.output_padding, strict=True)]
    rows, columns = found
    if rows is None or columns is None:
        return None
    work = rows.taps * columns.taps * a.stride[0] ** 2
    return (rows, columns) if work <= _MOST_WORK * kernel[0] * kernel[1] else None


def _axis(kernel: int, stride: int, padding: int, left: int) -> _Axis | None:
    largest, smallest = (kernel - 1 - padding) // stride, -((padding + stride - 1) // stride)
    taps = largest - smallest + 1
    growth, rest = divmod(kernel - 2 * padding + left - stride, stride)
    after = growth - largest + taps - 1
    return None if rest or largest < 0 or after < 0 else _Axis(taps, largest, after)


def _phases(weight: Tensor, stride: int, padding: tuple[int, int], axes: tuple[_Axis, _Axis]) -> Tensor:
    """[o, i, kh, kw] → [i·s², o, taps, taps]."""
    outputs, inputs, *kernel = weight.shape
    rows, columns = axes
    phases = weight.new_zeros(inputs, stride, stride, outputs, rows.taps, columns.taps)
    for a in range(stride):
        for b in range(stride):
            for j in range(rows.taps):
                for k in range(columns.taps):
                    y, x = stride * (rows.before - j) + a + padding[0], stride * (columns.before - k) + b + padding[1]
                    if 0 <= y < kernel[0] and 0 <= x < kernel[1]:
                        phases[:, a, b, :, j, k] = weight[:, :, y, x].T
    return phases.flatten(0, 2)
