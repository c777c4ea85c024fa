"""The B-cos picture: colour from the direction of W(x), opacity from its length where it speaks for the class.

r = max(0, W / max|W|);  colour_k = r_k / (r_k + r_{k+3})
a = ‖W‖, 0 where Σ x·W < 0;  a ← box_mean(a);  a ← clip(a / percentile(a), 0, 1)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bcos_sdk.pictures._filters import box_mean, clip_limit

__all__ = ["rgba"]

_EPSILON = 1e-12


def rgba(
    weights: npt.NDArray[np.floating],
    contributions: npt.NDArray[np.floating],
    *,
    smooth: int = 15,
    percentile: float = 99.5,
) -> npt.NDArray[np.float32]:
    """[6, H, W] and [H, W] → [H, W, 4] in [0, 1]; transparent where nothing speaks for the class.

    `smooth` is the width of the window in pixels; 0 and 1 leave the opacity as it is.
    """
    positive = np.maximum(weights / (np.abs(weights).max(0) + _EPSILON), 0)
    colours = positive[:3] / (positive[:3] + positive[3:] + _EPSILON)
    lengths = np.where(contributions < 0, 0, np.linalg.norm(weights, axis=0))
    lengths = box_mean(lengths, smooth) if smooth > 1 else lengths
    limit = clip_limit(lengths, percentile)
    alpha = np.clip(lengths / limit, 0, 1) if limit > 0 else lengths > 0
    return np.concatenate([colours.transpose(1, 2, 0), alpha[..., None]], axis=2, dtype=np.float32)
