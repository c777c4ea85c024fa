"""x = [r, g, b, 1 − r, 1 − g, 1 − b] with r, g, b in [0, 1]: the input of every B-cos network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bcos_sdk.contract import CHANNELS
from bcos_sdk.errors import InputError

__all__ = ["check_encoded", "decode", "encode", "expected_arrays"]

_LEVELS = np.arange(256, dtype=np.float32) / np.float32(255)
_COMPLEMENT_TOLERANCE = 1e-3  # float16 rounds rgb and 1 − rgb separately


def encode(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Convert uint8 pixels [H, W, 3] to the network's input [6, H, W]."""
    encoded = np.empty((CHANNELS, *pixels.shape[:2]), np.float32)
    np.take(_LEVELS, pixels.transpose(2, 0, 1), out=encoded[:3], mode="clip")
    np.subtract(np.float32(1), encoded[:3], out=encoded[3:])
    return encoded


def decode(encoded: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Convert the network's input [6, H, W] to the nearest uint8 pixels [H, W, 3]."""
    levels: npt.NDArray[np.uint8] = np.rint(encoded[:3] * 255).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def check_encoded(array: npt.NDArray[np.floating], size: tuple[int, int], source: str) -> npt.NDArray[np.float32]:
    """Return a float32 copy of an encoded image, or raise an `InputError` with the reason why it is not one."""
    expected = expected_arrays(size)
    if array.shape != (CHANNELS, *size):
        raise InputError(
            f"{source} is not an encoded image: its shape is {list(array.shape)}", source=source, hint=expected
        )
    encoded = np.array(array, dtype=np.float32, order="C")  # a copy, because the caller may change the array later
    if not np.isfinite(encoded).all():
        raise InputError(
            f"{source} is not an encoded image: it has values that are NaN or infinite", source=source, hint=expected
        )
    if encoded.min() < 0 or encoded.max() > 1:
        raise InputError(
            f"{source} is not an encoded image: its values range from {encoded.min():.3g} to {encoded.max():.3g}",
            source=source,
            hint=f"{expected} Do not subtract a mean or divide by a standard deviation for B-cos networks.",
        )
    if np.abs(encoded[:3] + encoded[3:] - 1).max() > _COMPLEMENT_TOLERANCE:
        raise InputError(
            f"{source} is not an encoded image: channels 3 to 5 are not 1 − rgb", source=source, hint=expected
        )
    return encoded


def expected_arrays(size: tuple[int, int]) -> str:
    """The hint that lists the arrays that a network with an input of this size takes."""
    height, width = size
    return (
        "Expected: [H, W, 3] in RGB order or [H, W], as uint8, uint16 or float in [0, 1]; "
        f"or float [{CHANNELS}, {height}, {width}] = [rgb, 1 − rgb] in [0, 1]."
    )
