"""Convert a picture of any mode to upright 8-bit RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image

from bcos_sdk.errors import InputError
from bcos_sdk.images._deep_colour import is_deep_colour, largest_colour
from bcos_sdk.images._depth import Notes, fraction_to_8_bits, integers_to_8_bits, stated_depth
from bcos_sdk.images._orientation import upright

__all__ = ["convert", "load_given", "to_rgb"]

_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0  # a tag of TIFF
_ALMOST_BLACK = 64  # the upper bytes of 14-bit values are below it


def to_rgb(picture: Image.Image, source: str) -> Image.Image:
    """Convert to 8-bit RGB and rotate upright by the EXIF tag. Alpha is dropped."""
    return convert(picture, source)[0]


def convert(picture: Image.Image, source: str) -> tuple[Image.Image, Notes]:
    """`to_rgb`, and notes on how 16-bit values were scaled."""
    info = picture.info
    notes: Notes = ()
    if picture.mode.startswith("I") or picture.mode == "F":
        picture, notes = _to_8_bits(picture, source)
    if picture.mode in ("P", "PA") and "transparency" in info:
        picture = picture.convert("RGBA")  # Pillow warns if such a picture is converted to RGB directly
    if picture.mode == "La":
        picture = picture.convert("LA")  # Pillow has no conversion from premultiplied grey to RGB
    return upright(picture if picture.mode == "RGB" else picture.convert("RGB"), info), notes


def load_given(picture: Image.Image, source: str) -> Notes:
    """Load a picture that the caller opened. Refuse it if Pillow drops the bits that matter."""
    deep = is_deep_colour(picture)
    picture.load()
    may_be_deep = picture.format in ("PNG", "TIFF") and picture.mode in ("RGB", "RGBA")
    if not may_be_deep or (largest := largest_colour(picture)) >= _ALMOST_BLACK:
        return ()
    if deep:
        raise InputError(
            f"{source} has 16-bit colours, of which a PIL image keeps the upper 8 bits, and these are almost black",
            source=source,
            hint="Pass the path or the bytes of the file instead: then all 16 bits are read.",
        )
    return (f"values up to {largest} of 255: if the file has 16-bit colours, pass its path instead of a PIL image",)


def _to_8_bits(picture: Image.Image, source: str) -> tuple[Image.Image, Notes]:
    values = np.asarray(picture)
    notes: Notes = ()
    if picture.mode == "F":
        pixels = fraction_to_8_bits(values, source)
    else:
        pixels, notes = integers_to_8_bits(values, source, stated_depth(picture, values))
    if getattr(picture, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO:  # Pillow inverts 8-bit pictures only
        pixels = 255 - pixels
    return Image.fromarray(pixels), notes
