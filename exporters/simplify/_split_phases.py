"""conv(x, w)ᵀ at stride s = pixel_shuffle(conv(·, w'), s), where w' has s² times the channels, and fewer taps.

Along one axis, y = s·m + a reads the tap t = s·q + a + p of w at the place m − q of the cotangent: for each phase a
the taps are others, and there are as many as values of q. Stems go to few channels, which leaves most of a vector
unit idle, and windows that do not overlap become a matrix product. Where many taps would be zeros it does not pay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bcos_sdk.exporters._ops import conv_transpose
from bcos_sdk.exporters._program import Program, bind, is_constant, is_uniform, path_of, shape_of

__all__ = ["split_phases"]

aten = torch.ops.aten

_MOST_WORK = 1.5  # multiplications with the zeros filled in, in parts of those without


class _Axis(NamedTuple):
    """The convolution along one axis: its number of taps, and the padding before and after."""

    taps: int
    before: int
    after: int


def split_phases(program: Program) -> int:
    """For programs by rows: their cotangents are feature maps, as convolutions know them."""
    split = 0
    for node in list(program.graph.find_nodes(op="call_function", target=conv_transpose)) if program.by_rows else ():
        a = bind(node)
        axes = _axes(a)
        if axes is None or is_uniform(
            program.value_of(a.weight)
        ):  # half precision leaves sums alone, and knows them so
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
    """How the convolution slides along rows and columns; None where it does not pay, or cannot be had."""
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
