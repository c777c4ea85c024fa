"""16-bit colours of PNG and TIFF files, of which Pillow keeps only the upper 8 bits.

A picture whose values have 15 bits or fewer is decoded a second time for the lower 8 bits: in the other byte order,
Pillow keeps these instead. Then its values are scaled like those of a grey picture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.ImageFile import ImageFile

from bcos_sdk.errors import InputError
from bcos_sdk.images._depth import Notes, integers_to_8_bits, stated_depth

__all__ = ["is_deep_colour", "largest_colour", "load_deep_colour", "refuse_separate_planes"]

_OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
_GREY_AND_ALPHA = "LA;16B"
_LAYOUTS = ("RGB", "RGBA", "RGBX")
_DIM = 128  # upper bytes below it: 15 bits or fewer
_PLANAR_CONFIGURATION, _SEPARATE, _BITS_PER_SAMPLE = 284, 2, 258


def is_deep_colour(picture: Image.Image) -> bool:
    """Whether Pillow will drop bits of the picture, which is opened but not loaded."""
    return ";16" in _raw_mode(picture) and picture.mode in ("RGB", "RGBA")


def largest_colour(picture: Image.Image) -> int:
    """The largest value of the colours of a loaded RGB or RGBA picture."""
    extrema: Any = picture.getextrema()
    return int(max(high for _, high in extrema[:3]))


def load_deep_colour(open_again: Callable[[], Image.Image], source: str) -> tuple[Image.Image, Notes]:
    """Decode a picture with 16-bit colours to 8 bits. `open_again` opens its file, and is called up to three times."""
    picture = open_again()
    raw_mode, info = _raw_mode(picture), picture.info
    upper = np.asarray(picture)
    if largest_colour(picture) >= _DIM:
        return picture, ()
    layout, _, order = raw_mode.partition(";16")
    in_planes = _tags(picture).get(_PLANAR_CONFIGURATION) == _SEPARATE
    if raw_mode == _GREY_AND_ALPHA:  # four bytes per pixel, upper and lower one of grey first
        values = _joined(upper[..., 0], _decoded(open_again(), "RGBA")[..., 1])
    elif layout in _LAYOUTS and not in_planes:
        lower = _decoded(open_again(), f"{layout};16{_OTHER_ORDER[order]}")
        values = _joined(upper[..., :3], lower[..., :3])
    else:
        raise InputError(
            f"{source} has 16-bit colours that are almost black, and their lower bits cannot be read",
            source=source,
            hint="Convert it to 8 bits, or save it as RGB with interleaved colours and without premultiplied alpha.",
        )
    pixels, notes = integers_to_8_bits(values, source, stated_depth(picture, values))
    scaled = Image.fromarray(pixels)
    scaled.info = info
    return scaled, notes


def refuse_separate_planes(picture: Image.Image, source: str) -> None:
    """Refuse uncompressed TIFF files with 16-bit colours in separate planes: Pillow decodes them to wrong pixels."""
    tags = _tags(picture)
    separate = tags.get(_PLANAR_CONFIGURATION) == _SEPARATE and picture.info.get("compression") == "raw"
    if separate and max(np.atleast_1d(tags.get(_BITS_PER_SAMPLE, 8))) > 8:
        raise InputError(
            f"{source} is an uncompressed TIFF file with 16-bit colours in separate planes, which cannot be decoded",
            source=source,
            hint="Save it with interleaved colours (PlanarConfiguration 1) or with compression.",
        )


def _tags(picture: Image.Image) -> Any:
    """The tags of a TIFF picture by number; none for other pictures."""
    return getattr(picture, "tag_v2", {})


def _raw_mode(picture: Image.Image) -> str:
    """The layout of the samples in the file; empty if the picture is already loaded."""
    tiles = getattr(picture, "tile", None)
    if not tiles:
        return ""
    arguments = tiles[0][3]
    return str(arguments if isinstance(arguments, str) else arguments[0] if arguments else "")


def _decoded(picture: Image.Image, raw_mode: str) -> npt.NDArray[np.uint8]:
    """Decode as if the samples had another layout with as many bits."""
    file = cast("ImageFile", picture)
    file.tile = [
        tile._replace(args=raw_mode if isinstance(tile.args, str) else (raw_mode, *(tile.args or ())[1:]))
        for tile in file.tile
    ]
    return np.asarray(file)


def _joined(upper: npt.NDArray[np.uint8], lower: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    values: npt.NDArray[np.uint16] = upper.astype(np.uint16) * np.uint16(256) + lower
    return values
