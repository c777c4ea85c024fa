"""Pictures for display: from arrays to PIL, enlarged if the network's input is small, and as data URIs for HTML."""

from __future__ import annotations

import base64
import io

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["data_uri", "enlarge", "enlargement", "on_white", "smoothing_window", "to_picture"]

_SIDE = 224
"""Smallest side of a displayed picture, and largest side of a thumbnail, in pixels."""
_SMOOTHING_WINDOW = 15
"""Width in pixels of the smoothing window of `rgba` in a picture that is not enlarged."""


def to_picture(colours: npt.NDArray[np.floating]) -> Image.Image:
    """Convert [H, W, 3 or 4] in [0, 1] to a PIL picture with 8 bits per channel."""
    return Image.fromarray(np.rint(colours * 255).astype(np.uint8))


def enlargement(size: tuple[int, int], side: int = _SIDE) -> int:
    """The smallest whole factor that makes both sides of `size` at least `side` pixels long; 1 for most networks."""
    return -(-side // min(size))


def enlarge(picture: Image.Image, factor: int) -> Image.Image:
    """Resize a picture to `factor` times its size."""
    if factor == 1:
        return picture
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.BICUBIC)


def smoothing_window(factor: int) -> int:
    """The smoothing window of `rgba` that is 15 pixels wide after the picture was enlarged by `factor`."""
    return max(1, round(_SMOOTHING_WINDOW / factor))


def on_white(picture: Image.Image) -> Image.Image:
    """Put a picture with transparency on a white background, for formats that have no transparency."""
    if picture.mode != "RGBA":
        return picture
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def data_uri(picture: Image.Image, side: int = _SIDE) -> str:
    """The picture as a WebP data URI, which HTML can contain, made smaller if it exceeds `side` × `side` pixels."""
    thumbnail = picture.copy()
    thumbnail.thumbnail((side, side))
    file = io.BytesIO()
    thumbnail.save(file, "WEBP", quality=75, method=2)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
