"""Explanations as colours: W(x) as the B-cos picture, contributions as a heat map or as an overlay on the image."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from bcos_sdk.contract import Box, Channels

__all__ = ["box_mean", "heatmap", "overlay", "rgba"]

Map = npt.NDArray[np.floating]

_EPSILON = 1e-12  # avoids 0 / 0 where W(x) is zero
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_FADED = 0.4  # contrast of what the network did not receive: neither black nor white pictures hide the edge
_RED, _BLUE = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def rgba(
    weights: Map,
    contributions: Map,
    *,
    smooth: int = 15,
    percentile: float = 99.5,
    channels: Channels = "rgb+complement",
) -> npt.NDArray[np.float32]:
    """Draw W(x): weights [6, H, W] and contributions [H, W] → [H, W, 4] in [0, 1].

    Colour is the direction of W(x), opacity is its length where the contribution is not negative:

        r = max(0, W / max|W|);  colour_k = r_k / (r_k + r_{k+3})
        a = ‖W‖, 0 where the contribution is negative;  a ← box_mean(a);  a ← clip(a / percentile(a), 0, 1)

    Grey with complement gives a grey value in this way, RGB without complement the colour r. Other channels have no
    colour: the picture is black.

    `smooth` is the width of the window of the box mean in pixels; 0 and 1 do not smooth.
    """
    positive = np.maximum(weights / (np.abs(weights).max(0) + _EPSILON), 0)
    half = len(positive) // 2
    if channels.endswith("+complement"):
        colours = positive[:half] / (positive[:half] + positive[half:] + _EPSILON)
    else:
        colours = positive if channels == "rgb" else np.zeros_like(positive[:1])
    colours = np.broadcast_to(colours, (3, *contributions.shape))
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
    pixels: npt.NDArray[np.uint8],
    contributions: Map,
    *,
    smooth: int = 0,
    percentile: float = 99.5,
    box: Box | None = None,
) -> npt.NDArray[np.float32]:
    """Draw the image [H, W, 3] in grey with the colours of the heat map on top: [H, W, 3] in [0, 1].

    The map is resized to the image, or to `box`, the left, top, right and bottom of the part of the image that it
    belongs to. Around the box the image has little contrast.
    """
    strength = _strength(contributions, smooth, percentile)
    grey = pixels @ _LUMA / 255
    if box is None:
        return _tint(grey, _resize(strength, grey.shape))
    rows, (top, bottom) = _pixels_inside(box[1], box[3], strength.shape[0], grey.shape[0])
    columns, (left, right) = _pixels_inside(box[0], box[2], strength.shape[1], grey.shape[1])
    size = rows.stop - rows.start, columns.stop - columns.start
    inside = _resize(strength, size, (left, top, right, bottom))
    drawn = _tint(0.5 + _FADED * (grey - 0.5), np.zeros_like(grey))
    drawn[rows, columns] = _tint(grey[rows, columns], inside)
    return drawn


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


def _strength(contributions: Map, smooth: int, percentile: float) -> npt.NDArray[np.float32]:
    """Contributions scaled to [−1, 1]."""
    values = box_mean(contributions, smooth) if smooth > 1 else np.asarray(contributions, np.float64)
    limit = float(np.percentile(np.abs(values), percentile))
    scaled = np.clip(values / limit, -1, 1) if limit > 0 else np.sign(values)
    return scaled.astype(np.float32)


def _tint(grey: Map, strength: Map) -> npt.NDArray[np.float32]:
    """Mix a grey image [H, W] with red where the strength [H, W] is positive, with blue where it is negative."""
    opacity = np.abs(strength)
    mixed = np.empty((*grey.shape, 3), np.float32)
    mixed[...] = (grey * (1 - opacity))[..., None]
    mixed[..., 0] += np.maximum(strength, 0)
    mixed[..., 2] += np.maximum(-strength, 0)
    return mixed


def _pixels_inside(low: float, high: float, cells: int, length: int) -> tuple[slice, tuple[float, float]]:
    """The pixels of an axis of this `length` whose centres lie between `low` and `high`, at least one.

    Also where these pixels begin and end on the axis of the map, whose `cells` lie between `low` and `high`.
    """
    start = min(max(math.ceil(low - 0.5), 0), length - 1)
    stop = max(min(math.ceil(high - 0.5), length), start + 1)
    scale = cells / (high - low)
    return slice(start, stop), ((start - low) * scale, (stop - low) * scale)


def _resize(
    strength: npt.NDArray[np.float32], size: tuple[int, ...], box: Box | None = None
) -> npt.NDArray[np.float32]:
    """Resize the map or its part `box` to height and width `size`. The box may exceed the map by one such pixel."""
    height, width = size
    if box is None:
        if strength.shape == size:
            return strength
        box = (0, 0, strength.shape[1], strength.shape[0])
    else:
        margin = math.ceil(max((box[2] - box[0]) / width, (box[3] - box[1]) / height))
        strength = np.pad(strength, margin, mode="edge")
        box = (box[0] + margin, box[1] + margin, box[2] + margin, box[3] + margin)
    resized = Image.fromarray(strength).resize((width, height), Image.Resampling.BICUBIC, box=box)
    return np.asarray(resized, np.float32).clip(-1, 1)  # bicubic interpolation overshoots


def _hue(strength: Map) -> npt.NDArray[np.float64]:
    return np.where(strength > 0, _RED, _BLUE)
