"""From 16-bit and floating-point values to the 8 bits of the network's input, with a note where the range is a choice.

Sensors of 10, 12 or 14 bits are often stored in 16 bits as they are, so their pictures would be almost black if the
upper 8 of 16 bits were kept. The upper 8 bits of the range that the file states are kept; if it states none, those of
the smallest usual range that holds all values.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk.errors import InputError

__all__ = ["Notes", "fraction_to_8_bits", "integers_to_8_bits", "stated_depth"]

Notes: TypeAlias = tuple[str, ...]
Pixels: TypeAlias = npt.NDArray[np.uint8]

_DEPTHS = (8, 10, 12, 14, 16)
_BITS_PER_SAMPLE, _MAX_SAMPLE, _LARGEST_SAMPLE = 258, 281, 341  # tags of TIFF


def integers_to_8_bits(values: npt.NDArray[Any], source: str, stated: int | None = None) -> tuple[Pixels, Notes]:
    """The upper 8 bits of the values, which have `stated` bits, or else the smallest usual number of bits."""
    top = int(values.max())
    if values.min() < 0 or top > 0xFFFF:
        raise InputError(
            f"{source} has values from {values.min()} to {top}, expected 0 to 65535",
            source=source,
            hint="Convert it to 8 bits, for example with np.uint8(values / values.max() * 255).",
        )
    found = next(depth for depth in _DEPTHS if top < 1 << depth)
    if stated is not None and top < 1 << stated:
        depth, note = max(8, stated), f"16-bit values: scaled as {stated} bits, as the file states"
    else:
        depth, note = found, f"16-bit values up to {top}: scaled as {found} bits (0 to {(1 << found) - 1})"
    return (values >> (depth - 8)).astype(np.uint8), (note,) if depth < 16 and top else ()


def fraction_to_8_bits(values: npt.NDArray[Any], source: str) -> Pixels:
    """round(255 · value), for values from 0 to 1. Others are refused with the conversion to use."""
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError(
            f"{source} has values that are NaN or infinite",
            source=source,
            hint="Replace them, for example with np.nan_to_num(array).",
        )
    if low >= 0 and high <= 1:
        pixels: Pixels = np.rint(values * 255).astype(np.uint8)
        return pixels
    if low < 0:
        hint = "Pass r, g, b in 0 to 1. Do not subtract a mean or divide by a standard deviation for B-cos networks."
    elif high <= 255:
        hint = "If 255 is white: array.astype(np.uint8)."
    else:
        hint = "If the largest value is white: array / array.max()."
    raise InputError(
        f"{source} has floating-point values from {low:.3g} to {high:.3g}, expected 0 to 1", source=source, hint=hint
    )


def stated_depth(picture: Image.Image, values: npt.NDArray[Any]) -> int | None:
    """The number of bits that the file of a 16-bit picture states for its values; None if it states none."""
    significant = picture.info.get("sbit")
    if significant:
        of_colours = significant[:-1] if len(significant) in (2, 4) else significant  # without alpha
        return _of_png(values, max(of_colours))
    tags = getattr(picture, "tag_v2", {})
    bits = _largest(tags.get(_BITS_PER_SAMPLE))
    if bits is not None and 8 < bits < 16:
        return bits
    largest = _largest(tags.get(_LARGEST_SAMPLE)) or _largest(tags.get(_MAX_SAMPLE))
    return largest.bit_length() if largest else None


def _of_png(values: npt.NDArray[Any], significant: int) -> int | None:
    """The number of bits of samples for which a PNG states `significant` bits in its chunk sBIT.

    The PNG specification wants samples scaled to all 16 bits, but some writers leave them unscaled. Samples below
    1 << significant are unscaled unless their lower bits are all 0, as those of a dark scaled picture are.
    """
    if not 0 < significant <= 16:
        return None
    scaled = int(values.max()) >= 1 << significant or not (values & ((1 << (16 - significant)) - 1)).any()
    return 16 if scaled else significant


def _largest(tag: Any) -> int | None:
    """The largest of the whole numbers in a tag; None if it has others or none."""
    numbers = tag if isinstance(tag, tuple) else (tag,)
    return max(numbers) if numbers and all(isinstance(number, int) for number in numbers) else None
