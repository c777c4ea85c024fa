"""Convert to RGB, resize the shorter side, crop the centre: pixel for pixel the published evaluation transform."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import ImageTooLargeError, InputError
from bcos_sdk.images._geometry import Placement
from bcos_sdk.limits import Limits

__all__ = ["enlarged_crop", "to_pixels", "to_rgb"]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def to_rgb(picture: Image.Image, source: str) -> Image.Image:
    """Convert to 8-bit RGB and rotate upright by the EXIF tag. Alpha is dropped, 16 bits keep their upper 8."""
    with contextlib.suppress(Exception):  # unreadable EXIF tags are ignored
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I"):
        picture = _to_8_bits(picture, source)
    if picture.mode == "F":
        raise InputError(
            f"{source} has floating-point pixels",
            source=source,
            hint="Convert it to 8 bits: the client does not know the range of its values.",
        )
    if picture.mode in ("P", "PA") and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # Pillow warns if such a picture is converted to RGB directly
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def to_pixels(picture: Image.Image, spec: InputSpec, source: str, limits: Limits) -> npt.NDArray[np.uint8]:
    """Resize and crop an RGB picture to the size of the network's input: uint8 [H, W, 3]."""
    placement = Placement.of(picture.size, spec)
    width, height = placement.resized
    if width * height > limits.pixels:  # a picture one pixel wide becomes very long
        raise ImageTooLargeError(
            f"{source} is {picture.width} × {picture.height} pixels and would become {width} × {height} by "
            f"resizing, the limit is {limits.pixels:,} pixels",
            source=source,
            hint="Crop it to a less extreme shape.",
        )
    if spec.crop is not None and (width < spec.crop[1] or height < spec.crop[0]):
        raise InputError(
            f"{source} has {width} × {height} pixels, too few for a crop of {spec.crop[1]} × {spec.crop[0]}",
            source=source,
            hint="Pass a larger image, or export the model with a resize in its preprocessing.",
        )
    if picture.size != placement.resized:
        picture = picture.resize(placement.resized, _FILTERS[spec.interpolation])
    picture = picture.crop(placement.crop)
    if picture.size != (spec.size[1], spec.size[0]):
        raise InputError(
            f"{source} has {picture.width} × {picture.height} pixels, but this model takes {spec.size[1]} × "
            f"{spec.size[0]} and does not resize",
            source=source,
            hint="Resize or crop the image, or export the model with a resize in its preprocessing.",
        )
    return np.asarray(picture)


def enlarged_crop(picture: Image.Image, spec: InputSpec, factor: int) -> npt.NDArray[np.uint8] | None:
    """The part of an RGB picture that `to_pixels` returns, at `factor` times that size: uint8 [factor·H, factor·W, 3].

    None if this would show no more than the network's input: the factor is 1, or the picture was not made smaller.
    """
    height, width = spec.size
    left, top, right, bottom = box = Placement.of(picture.size, spec).geometry.box
    if factor == 1 or (right - left <= width and bottom - top <= height):
        return None
    size = width * factor, height * factor
    return np.asarray(picture.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=3))


def _to_8_bits(picture: Image.Image, source: str) -> Image.Image:
    values: npt.NDArray[Any] = np.asarray(picture)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise InputError(f"{source} has pixels of more than 16 bits", source=source, hint="Convert it to 8 bits.")
    if picture.mode == "I" and values.max() <= 0xFF:  # 32-bit pixels that hold 8-bit values
        return Image.fromarray(values.astype(np.uint8))
    return Image.fromarray((values.astype(np.uint16) >> 8).astype(np.uint8))
