"""Smoothing and scaling of maps, for any kernel and any size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["box_mean", "clip_limit"]

Map = npt.NDArray[np.floating]


def box_mean(values: Map, kernel: int) -> npt.NDArray[np.float64]:
    """The mean over a kernel × kernel window around each pixel, zeros outside; same size for even kernels too."""
    if kernel < 1:
        raise ValueError(f"a window of {kernel} pixels has no mean")
    padding = (kernel - 1) // 2, kernel // 2
    padded = np.pad(np.asarray(values, np.float64), (padding, padding))
    rows: npt.NDArray[np.float64] = sliding_window_view(padded, kernel, axis=0).mean(-1)
    means: npt.NDArray[np.float64] = sliding_window_view(rows, kernel, axis=1).mean(-1)
    return means


def clip_limit(values: Map, percentile: float) -> float:
    """The percentile of the values, interpolated linearly; 0 for a map of zeros."""
    return float(np.percentile(values, percentile))
