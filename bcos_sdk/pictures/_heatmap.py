"""Signed contributions as colours: blue speaks against the class, white not at all, red for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk.pictures._filters import box_mean, clip_limit

__all__ = ["heatmap", "overlay"]

_LUMA = np.array([0.299, 0.587, 0.114])
_RED, _BLUE = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def heatmap(
    contributions: npt.NDArray[np.floating], *, smooth: int = 0, percentile: float = 99.5
) -> npt.NDArray[np.float32]:
    """[H, W] → [H, W, 3] in [0, 1]; the colours end at ± the percentile of |contribution|."""
    strength = _strength(contributions, smooth, percentile)[..., None]
    return (1 - np.abs(strength) * (1 - _hue(strength))).astype(np.float32)


def overlay(
    pixels: npt.NDArray[np.uint8],
    contributions: npt.NDArray[np.floating],
    *,
    smooth: int = 0,
    percentile: float = 99.5,
) -> npt.NDArray[np.float32]:
    """The image [H, W, 3] in grey, coloured where it contributes: [H, W, 3] in [0, 1].

    A sharper image of the same view may be larger than the map: the map is then laid over it.
    """
    strength = _stretched(_strength(contributions, smooth, percentile), pixels.shape[:2])[..., None]
    grey = (pixels @ _LUMA / 255)[..., None]
    mixed: npt.NDArray[np.float64] = grey * (1 - np.abs(strength)) + np.abs(strength) * _hue(strength)
    return mixed.astype(np.float32)


def _strength(contributions: npt.NDArray[np.floating], smooth: int, percentile: float) -> npt.NDArray[np.float64]:
    """Contributions in [−1, 1]."""
    values = box_mean(contributions, smooth) if smooth > 1 else np.asarray(contributions, np.float64)
    limit = clip_limit(np.abs(values), percentile)
    return np.clip(values / limit, -1, 1) if limit > 0 else np.sign(values)


def _stretched(strength: npt.NDArray[np.float64], size: tuple[int, ...]) -> npt.NDArray[np.float64]:
    height, width = size
    if strength.shape == size:
        return strength
    stretched = Image.fromarray(strength.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(stretched, np.float64), -1, 1)


def _hue(strength: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(strength > 0, _RED, _BLUE)
