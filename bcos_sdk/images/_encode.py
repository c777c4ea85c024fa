"""x = [r, g, b, 1 − r, 1 − g, 1 − b] with r, g, b in [0, 1]: the six channels of every B-cos network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import InputError

__all__ = ["check_encoded", "decode", "encode"]

_LEVELS = np.arange(256, dtype=np.float32) / np.float32(255)
_SLACK = 1e-3  # of a complement that went through float16


def encode(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """[H, W, 3] of bytes → [6, H, W]."""
    encoded = np.empty((6, *pixels.shape[:2]), np.float32)
    np.take(_LEVELS, pixels.transpose(2, 0, 1), out=encoded[:3], mode="clip")
    np.subtract(np.float32(1), encoded[:3], out=encoded[3:])
    return encoded


def decode(encoded: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """[6, H, W] → the nearest [H, W, 3] of bytes."""
    levels: npt.NDArray[np.uint8] = np.rint(encoded[:3] * 255).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def check_encoded(array: npt.NDArray[np.floating], size: tuple[int, int], source: str) -> npt.NDArray[np.float32]:
    """An array of floats as the network takes it, or an error that says what it looks like instead."""
    height, width = size
    expected = f"Expected: uint8 [H, W, 3] in RGB order, or float [6, {height}, {width}] = [rgb, 1 − rgb] in [0, 1]."
    if array.shape != (6, height, width):
        reason = "it has 3 channels and no complement" if 3 in array.shape else f"its shape is {list(array.shape)}"
        raise InputError(f"{source} is not an encoded image: {reason}", source=source, hint=expected)
    encoded = np.array(array, dtype=np.float32, order="C")  # a copy: the caller may change his
    if not np.isfinite(encoded).all():
        raise InputError(f"{source} has values that are no numbers", source=source, hint=expected)
    if encoded.min() < 0 or encoded.max() > 1:
        reason = f"its values reach from {encoded.min():.3g} to {encoded.max():.3g}"
        raise InputError(
            f"{source} is not an encoded image: {reason}",
            source=source,
            hint=f"{expected} B-cos networks take no mean or standard deviation off.",
        )
    if np.abs(encoded[:3] + encoded[3:] - 1).max() > _SLACK:
        raise InputError(
            f"{source} is not an encoded image: channels 3 to 5 are not 1 − rgb", source=source, hint=expected
        )
    return encoded
