"""A grid of images and targets through a graph that works by rows: [B, K] targets, B runs at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["explain_by_rows"]

Arrays = dict[str, npt.NDArray[Any]]
_PER_IMAGE = "logits"


def explain_by_rows(
    run: Callable[[npt.NDArray[Any], npt.NDArray[Any]], Arrays], images: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> Arrays:
    """What the graph says of images [B, …] and targets [B, K], as the graph that takes a grid would say it.

    `run` takes images and rows of targets: one for each image, or any number for one image. One target for each image
    is one run; of several, each image has its own, which computes its forward pass once.
    """
    assert len(images), "a batch has images"
    if targets.shape[1] == 1:
        outputs = run(images, targets[:, 0])
        return {name: value if name == _PER_IMAGE else value[:, None] for name, value in outputs.items()}
    runs = [run(images[place : place + 1], row) for place, row in enumerate(targets)]
    return {
        name: np.concatenate([one[name] for one in runs])
        if name == _PER_IMAGE
        else np.stack([one[name] for one in runs])
        for name in runs[0]
    }
