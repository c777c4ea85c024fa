"""The grid pointing game: the share of the positive contribution to a class that falls into its own cell of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import BcosError
from bcos_sdk.evaluation._grid_maps import GridMaps
from bcos_sdk.evaluation._items import Figures, Item, spread
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.evaluation.grids import Grid, assemble
from bcos_sdk.pictures import box_mean

__all__ = ["own_cell_shares", "play", "score_grid", "smoothing_window", "summarise"]


def smoothing_window(side: int) -> int:
    """15 pixels for images of 224, 3 for images of 32: the window of the paper."""
    return 3 if side <= 32 else max(1, round(15 * side / 224))


def own_cell_shares(
    maps: npt.ArrayLike, n: int, *, smooth: int = 1, top: float | None = None
) -> npt.NDArray[np.float64]:
    """[n·n]: of map i, Σ positive values in cell i ÷ Σ positive values; 0 if no value is positive.

    maps: [n·n, n·h, n·w]. They are smoothed with a box before negative values are left out. With `top`, only that share
    of the pixels of each map counts, the largest.
    """
    values = np.asarray(maps, np.float64)
    if smooth > 1:
        values = np.stack([box_mean(one, smooth) for one in values])
    positive = np.maximum(values, 0)
    if top is not None:
        positive = np.stack([_largest(one, max(1, round(top * one.size))) for one in positive])
    count, height, width = positive.shape
    cells = positive.reshape(count, n, height // n, n, width // n).sum((2, 4)).reshape(count, n * n)
    own, total = np.diagonal(cells), cells.sum(1)
    shares: npt.NDArray[np.float64] = np.divide(own, total, out=np.zeros(count), where=total > 0)
    return shares


def _largest(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """The `count` largest values, zero elsewhere."""
    flat = values.ravel()
    kept = np.argpartition(-flat, count - 1)[:count]
    only = np.zeros_like(flat)
    only[kept] = flat[kept]
    return only.reshape(values.shape)


def score_grid(name: str, maps: npt.ArrayLike, n: int, *, smooth: int, top: float) -> Item:
    """The mean over the cells of a grid: smoothed (the score of the paper), not smoothed, and of the largest pixels."""
    smoothed = own_cell_shares(maps, n, smooth=smooth)
    return Item(
        name=name,
        scores={
            "localisation": float(smoothed.mean()),
            "raw": float(own_cell_shares(maps, n).mean()),
            "quantile": float(own_cell_shares(maps, n, smooth=smooth, top=top).mean()),
        },
        curves={"cells": tuple(map(float, smoothed))},
    )


def play(
    subject: Subject,
    samples: Sequence[Sample],
    grids: Sequence[Grid],
    grid_maps: GridMaps,
    *,
    smooth: int,
    top: float,
) -> Iterator[Item]:
    """Explain every class of each grid on the whole grid, and score the maps."""
    for grid in grids:
        try:
            pixels = assemble([subject.pixels(samples[cell]) for cell in grid.cells], grid_maps.n)
            maps = grid_maps.explain(pixels, grid.classes)
        except BcosError as error:
            yield Item.failed(grid.name, error)
            continue
        yield score_grid(grid.name, maps, grid_maps.n, smooth=smooth, top=top)


def summarise(items: Sequence[Item], n: int) -> Figures:
    """Means over grids; the spread of the score over all cells of all grids."""
    names = ("localisation", "raw", "quantile")
    means = {name: float(np.mean([item.scores[name] for item in items])) for name in names}
    cells = [value for item in items for value in item.curves["cells"]]
    return Figures(items=len(items), values={**means, "chance": 1 / n**2}, spreads={"localisation": spread(cells)})
