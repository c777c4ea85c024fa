"""Where positions of a layer lie in the network's input, and which part of the input a value comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import LayerRecord
from bcos_sdk.contract import Box

__all__ = ["cell_of", "field_around", "field_side", "position_of"]

_SHARE = 0.9
"""The field of a direction has this share of the absolute contributions, in half of its examples."""
_SMALL_INPUT = 64
"""Inputs with at most so many pixels a side are shown whole."""
_NEARLY_ALL = 0.8


def position_of(record: LayerRecord, index: int) -> tuple[int, ...]:
    """(y, x), (token,) or () of the position with this index."""
    return tuple(int(one) for one in np.unravel_index(index, record.positions)) if record.positions else ()


def cell_of(record: LayerRecord, index: int, size: tuple[int, int]) -> Box | None:
    """The cell of the position, if the layer's positions divide the input into a grid.

    Tokens do if their number is a square, as without a class token.
    """
    grid = record.positions
    if len(grid) == 1 and math.isqrt(grid[0]) ** 2 == grid[0]:
        grid = (math.isqrt(grid[0]),) * 2
    if len(grid) != 2 or grid == (1, 1):
        return None
    row, column = divmod(index, grid[1])
    height, width = size[0] / grid[0], size[1] / grid[1]
    return column * width, row * height, (column + 1) * width, (row + 1) * height


def field_side(maps: Sequence[tuple[npt.NDArray[np.float32], Box | None]]) -> int | None:
    """The side of the square around a cell that has most of the contributions [H, W]; None if it is most of the input.

    A value's receptive field in theory is often the whole input, while nearly all of the value comes from a part of it.
    """
    sides = []
    for contributions, cell in maps:
        height, width = contributions.shape
        if cell is None or min(height, width) <= _SMALL_INPUT:
            return None
        x, y = (cell[0] + cell[2]) / 2, (cell[1] + cell[3]) / 2
        rows, columns = np.abs(np.arange(height) + 0.5 - y), np.abs(np.arange(width) + 0.5 - x)
        distance = np.maximum(rows[:, None], columns[None]).ravel()
        order = np.argsort(distance, kind="stable")
        share = np.abs(contributions).ravel()[order].cumsum(dtype=np.float64)
        inside = int(np.searchsorted(share, _SHARE * share[-1])) if share[-1] > 0 else len(order) - 1
        sides.append(2 * float(distance[order[min(inside, len(order) - 1)]]) + 1)
    if not sides:
        return None
    side = math.ceil(float(np.median(sides)) / 8) * 8
    return None if side >= _NEARLY_ALL * min(maps[0][0].shape) else side


def field_around(cell: Box, side: int, size: tuple[int, int]) -> Box:
    """The square of this side around a cell, moved into the input."""
    height, width = size
    left = min(max(round((cell[0] + cell[2] - side) / 2), 0), width - side)
    top = min(max(round((cell[1] + cell[3] - side) / 2), 0), height - side)
    return left, top, left + side, top + side
