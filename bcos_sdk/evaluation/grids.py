"""Grids of the pointing game: n × n images of different classes, the most confident and correct ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import InputError
from bcos_sdk.evaluation._items import Item

__all__ = ["Grid", "assemble", "choose_grids"]

_LEAST_PROBABILITY = 0.5


@dataclass(frozen=True)
class Grid:
    """The images of a grid and their classes, row by row."""

    name: str
    cells: tuple[int, ...]
    """Positions in the list of classified images."""
    classes: tuple[int, ...]


def choose_grids(items: Sequence[Item], count: int, n: int, seed: int) -> list[Grid]:
    """At most `count` grids from classified images. No image is used twice.

    Of each class, the images that are right with a probability above 0.5 are used by descending logit. The classes of a
    grid are drawn without replacement from those that have images left.
    """
    queues: dict[int, list[int]] = {}
    order = np.argsort([-item.scores.get("logit", -np.inf) for item in items], kind="stable")
    for place in map(int, order):
        scores = items[place].scores
        if scores and scores["top1"] == 1 and scores["probability"] > _LEAST_PROBABILITY:
            queues.setdefault(int(scores["label"]), []).append(place)
    random = np.random.RandomState(seed)
    used = dict.fromkeys(sorted(queues), 0)
    grids: list[Grid] = []
    while len(grids) < count:
        free = [one for one, place in used.items() if place < len(queues[one])]
        if len(free) < n * n:
            break
        classes = [int(one) for one in random.choice(free, n * n, replace=False)]
        grids.append(Grid(f"grid {len(grids):04}", tuple(queues[one][used[one]] for one in classes), tuple(classes)))
        for one in classes:
            used[one] += 1
    if not grids:
        raise InputError(
            f"a grid of {n} × {n} needs confident, correct images of {n * n} classes, but only {len(queues)} classes "
            "have any",
            source="localisation",
            hint=f"{_smaller(n, len(queues))}Use more images, or a model that is more confident.",
        )
    return grids


def _smaller(n: int, classes: int) -> str:
    """Advice to use smaller grids, if there are enough classes for them."""
    fits = [side for side in range(2, n) if side**2 <= classes]
    return f"Use smaller grids: --cells {fits[-1]}. " if fits else ""


def assemble(images: Sequence[npt.NDArray[np.uint8]], n: int) -> npt.NDArray[np.uint8]:
    """[h, w, 3] each, row by row → [n·h, n·w, 3]."""
    return np.concatenate([np.concatenate(images[row * n : row * n + n], axis=1) for row in range(n)], axis=0)
