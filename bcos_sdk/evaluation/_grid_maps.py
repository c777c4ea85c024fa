"""Contribution maps of a whole grid: by the network at the grid's size, or by sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bcos_sdk.client import Client, Contrast
from bcos_sdk.images import encode
from bcos_sdk.results import Explained

__all__ = ["GridMaps", "NetworkMaps", "WindowMaps"]

Maps = npt.NDArray[np.float64]


class GridMaps(Protocol):
    """Explains classes on a grid of n × n images."""

    n: int
    mode: str

    def explain(self, pixels: npt.NDArray[np.uint8], classes: Sequence[int]) -> Maps:
        """uint8 [n·h, n·w, 3] → the map of each class, [classes, n·h, n·w]."""


class NetworkMaps:
    """A bundle of the same network whose input is as large as the grid."""

    mode = "network"

    def __init__(self, client: Client, n: int, *, mean_corrected: bool = False) -> None:
        self.n = n
        self._client = client
        self._mean_corrected = mean_corrected

    def explain(self, pixels: npt.NDArray[np.uint8], classes: Sequence[int]) -> Maps:
        # Encoded, because pixels of another size would be resized without a word.
        targets = [_target(one, self._mean_corrected) for one in classes]
        (result,) = self._client.explain(encode(pixels), targets=[targets])
        return _maps(result)


class WindowMaps:
    """The network slides over the grid by half its input size; the maps of all windows are added.

    This explains the sum of the logits of all windows, to which each window contributes its own pixels.
    """

    mode = "windows"

    def __init__(self, client: Client, n: int, *, mean_corrected: bool = False) -> None:
        self.n = n
        self._client = client
        self._mean_corrected = mean_corrected

    def explain(self, pixels: npt.NDArray[np.uint8], classes: Sequence[int]) -> Maps:
        height, width = self._client.manifest.input.size
        total = np.zeros((len(classes), *pixels.shape[:2]))
        targets = [_target(one, self._mean_corrected) for one in classes]
        places = [(top, left) for top in _starts(pixels.shape[0], height) for left in _starts(pixels.shape[1], width)]
        windows = [encode(pixels[top : top + height, left : left + width]) for top, left in places]
        for (top, left), result in zip(places, self._client.explain(windows, targets=targets), strict=True):
            total[:, top : top + height, left : left + width] += _maps(result)
        return total


def _starts(length: int, window: int) -> list[int]:
    """Where windows begin: every half window, and the last one at the end."""
    return sorted({*range(0, length - window + 1, max(1, window // 2)), length - window})


def _target(index: int, mean_corrected: bool) -> int | Contrast:
    return Contrast(index) if mean_corrected else index


def _maps(result: Explained) -> Maps:
    return np.stack([one.contributions for one in result.explanations]).astype(np.float64)
