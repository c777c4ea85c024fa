"""Explanations as colours: W(x) as the B-cos picture, contributions as a heat map or as an overlay on the image."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

__all__ = ["box_mean", "heatmap", "overlay", "rgba"]

Map = npt.NDArray[np.floating]

_EPSILON = 1e-12  # avoids 0 / 0 where W(x) is zero
_LUMA = np.array([0.299, 0.587, 0.114])
_RED, _BLUE = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def rgba(weights: Map, contributions: Map, *, smooth: int = 15, percentile: float = 99.5) -> npt.NDArray[np.float32]:
    """Draw W(x): weights [6, H, W] and contributions [H, W] → [H, W, 4] in [0, 1].

    Colour is the direction of W(x), opacity is its length where the contribution is not negative:

        r = max(0, W / max|W|);  colour_k = r_k / (r_k + r_{k+3})
        a = ‖W‖, 0 where the contribution is negative;  a ← box_mean(a);  a ← clip(a / percentile(a), 0, 1)

    `smooth` is the width of the window of the box mean in pixels; 0 and 1 do not smooth.
    """
    positive = np.maximum(weights / (np.abs(weights).max(0) + _EPSILON), 0)
    colours = positive[:3] / (positive[:3] + positive[3:] + _EPSILON)
    lengths = np.where(contributions < 0, 0, np.linalg.norm(weights, axis=0))
    lengths = box_mean(lengths, smooth) if smooth > 1 else lengths
    limit = float(np.percentile(lengths, percentile))
    alpha = np.clip(lengths / limit, 0, 1) if limit > 0 else lengths > 0
    return np.concatenate([colours.transpose(1, 2, 0), alpha[..., None]], axis=2, dtype=np.float32)


def heatmap(contributions: Map, *, smooth: int = 0, percentile: float = 99.5) -> npt.NDArray[np.float32]:
    """Draw contributions [H, W] as [H, W, 3] in [0, 1]: positive red, negative blue, zero white.

    Colours are saturated at ± the percentile of |contribution|.
    """
    strength = _strength(contributions, smooth, percentile)[..., None]
    return (1 - np.abs(strength) * (1 - _hue(strength))).astype(np.float32)


def overlay(
    pixels: npt.NDArray[np.uint8], contributions: Map, *, smooth: int = 0, percentile: float = 99.5
) -> npt.NDArray[np.float32]:
    """Draw the image [H, W, 3] in grey with the colours of the heat map on top: [H, W, 3] in [0, 1].

    The image may be larger than the map if both show the same crop. The map is then resized to the image.
    """
    strength = _resize(_strength(contributions, smooth, percentile), pixels.shape[:2])[..., None]
    grey = (pixels @ _LUMA / 255)[..., None]
    mixed: npt.NDArray[np.float64] = grey * (1 - np.abs(strength)) + np.abs(strength) * _hue(strength)
    return mixed.astype(np.float32)


def box_mean(values: Map, kernel: int) -> npt.NDArray[np.float64]:
    """Mean over a kernel × kernel window around each pixel, with zeros outside. The size stays the same.

    An even window has its extra row and column below and to the right of the pixel.
    """
    if kernel < 1:
        raise ValueError(f"the window of a box mean is {kernel} pixels wide, expected at least 1")
    padding = (kernel - 1) // 2, kernel // 2
    padded = np.pad(np.asarray(values, np.float64), (padding, padding))
    rows: npt.NDArray[np.float64] = sliding_window_view(padded, kernel, axis=0).mean(-1)
    means: npt.NDArray[np.float64] = sliding_window_view(rows, kernel, axis=1).mean(-1)
    return means


def _strength(contributions: Map, smooth: int, percentile: float) -> npt.NDArray[np.float64]:
    """Contributions scaled to [−1, 1]."""
    values = box_mean(contributions, smooth) if smooth > 1 else np.asarray(contributions, np.float64)
    limit = float(np.percentile(np.abs(values), percentile))
    return np.clip(values / limit, -1, 1) if limit > 0 else np.sign(values)


def _resize(strength: npt.NDArray[np.float64], size: tuple[int, ...]) -> npt.NDArray[np.float64]:
    height, width = size
    if strength.shape == size:
        return strength
    resized = Image.fromarray(strength.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(resized, np.float64), -1, 1)  # bicubic interpolation overshoots


def _hue(strength: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(strength > 0, _RED, _BLUE)
