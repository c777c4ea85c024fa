"""Run batches that do not fit into the memory of a device in halves, first of their images, then of their targets.

For images b and their targets k the outputs of a graph do not depend on what else runs with them:

    run(images, targets) = join of run(images[part], targets[part, part'])
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.contract import Arrays, is_per_target
from bcos_sdk.errors import OutOfMemoryError

__all__ = ["Halves", "Start"]

Queries: TypeAlias = npt.NDArray[Any]
"""What is asked of each image: targets, positions or directions [B, K, …]."""
Start: TypeAlias = Callable[..., Callable[[], Arrays]]
"""Starts a graph on images [B, …] and queries [B, K, …]. The returned function waits for its outputs."""


class Halves:
    """Runs the graphs of one device, and remembers for each what did not fit.

    `make_room` frees the memory that graphs keep between runs, and returns whether there was any.
    """

    def __init__(self, make_room: Callable[[], bool]) -> None:
        self._make_room = make_room
        self._most_rows: dict[Path, int] = {}
        """For each graph that ran out of memory, the most images × targets that may fit."""

    def start(self, graph: Path, start: Start, images: Any, *queries: Queries) -> Callable[[], Arrays]:
        """Start a batch. If it does not fit, it has run in halves when this returns."""
        rows = len(images) * (queries[0].shape[1] if queries else 1)
        if rows == 1:
            return self._started(start, images, *queries)
        if rows <= self._most_rows.get(graph, rows):
            try:
                return self._started(start, images, *queries)
            except OutOfMemoryError:
                self._most_rows[graph] = rows - 1
        outputs = self._in_halves(graph, start, images, *queries)
        return lambda: outputs

    def _started(self, start: Start, images: Any, *queries: Queries) -> Callable[[], Arrays]:
        """Start the whole batch, if need be once more after the memory was freed that other graphs keep."""
        try:
            return start(images, *queries)
        except OutOfMemoryError:
            if not self._make_room():
                raise
        return start(images, *queries)

    def _in_halves(self, graph: Path, start: Start, images: Any, *queries: Queries) -> Arrays:
        count = len(images)
        by_image = count > 1
        middle = (count if by_image else queries[0].shape[1]) // 2
        halves = []
        for part in (slice(middle), slice(middle, None)):
            some = images[part] if by_image else images
            asked = [one[part] if by_image else one[:, part] for one in queries]
            halves.append(self.start(graph, start, some, *asked)())
        return _joined(halves, by_image=by_image)


def _joined(halves: list[Arrays], *, by_image: bool) -> Arrays:
    """The outputs of a batch from those of its halves. Halves of the targets of one image have the same logits."""
    return {
        name: np.concatenate([half[name] for half in halves], axis=0 if by_image else 1)
        if by_image or is_per_target(name)
        else array
        for name, array in halves[0].items()
    }
