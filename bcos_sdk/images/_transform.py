"""Convert to RGB, resize the shorter side, crop the centre: pixel for pixel the published evaluation transform."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import ImageTooLargeError, InputError
from bcos_sdk.limits import Limits

__all__ = ["enlarged_input", "to_pixels", "to_rgb"]

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
    if spec.resize is not None:
        size = _size_by_shorter_side(picture.size, spec.resize)
        if size[0] * size[1] > limits.pixels:  # a picture one pixel wide becomes very long
            raise ImageTooLargeError(
                f"{source} is {picture.width} × {picture.height} pixels and would become {size[0]} × {size[1]} by "
                f"resizing, the limit is {limits.pixels:,} pixels",
                source=source,
                hint="Crop it to a less extreme shape.",
            )
        picture = picture if picture.size == size else picture.resize(size, _FILTERS[spec.interpolation])
    if spec.crop is not None:
        picture = _crop_centre(picture, *spec.crop, source)
    height, width = spec.size
    if picture.size != (width, height):
        raise InputError(
            f"{source} has {picture.width} × {picture.height} pixels, but this model takes {width} × {height} "
            "and does not resize",
            source=source,
            hint="Resize or crop the image, or export the model with a resize in its preprocessing.",
        )
    return np.asarray(picture)


def enlarged_input(spec: InputSpec, factor: int) -> InputSpec:
    """The input that shows the same crop of an image at `factor` times the size, for pictures of small networks."""
    height, width = spec.size
    size = height * factor, width * factor
    return InputSpec(
        size=size,
        resize=None if spec.resize is None else spec.resize * factor,
        crop=size if spec.crop else None,
        interpolation="bicubic",
    )


def _to_8_bits(picture: Image.Image, source: str) -> Image.Image:
    values: npt.NDArray[Any] = np.asarray(picture)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise InputError(f"{source} has pixels of more than 16 bits", source=source, hint="Convert it to 8 bits.")
    if picture.mode == "I" and values.max() <= 0xFF:  # 32-bit pixels that hold 8-bit values
        return Image.fromarray(values.astype(np.uint8))
    return Image.fromarray((values.astype(np.uint16) >> 8).astype(np.uint8))


def _size_by_shorter_side(size: tuple[int, int], side: int) -> tuple[int, int]:
    width, height = size
    return (side, int(side * height / width)) if width <= height else (int(side * width / height), side)


def _crop_centre(picture: Image.Image, height: int, width: int, source: str) -> Image.Image:
    if picture.width < width or picture.height < height:
        raise InputError(
            f"{source} has {picture.width} × {picture.height} pixels, too few for a crop of {width} × {height}",
            source=source,
            hint="Pass a larger image, or export the model with a resize in its preprocessing.",
        )
    # Round half to even, like the published evaluation transform.
    left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
    return picture.crop((left, top, left + width, top + height))
