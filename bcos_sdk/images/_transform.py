"""Resize the shorter side, crop the centre, in RGB: the published evaluation transform, pixel for pixel."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import ImageTooLargeError, InputError
from bcos_sdk.limits import Limits

__all__ = ["to_pixels", "to_rgb"]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def to_rgb(picture: Image.Image, source: str) -> Image.Image:
    """Upright, three channels of eight bits; alpha is dropped, 16 bits keep their upper eight."""
    with contextlib.suppress(Exception):  # tags that cannot be read turn nothing
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I"):
        picture = _upper_byte(picture, source)
    if picture.mode == "F":
        raise InputError(
            f"{source} has floating-point pixels", source=source, hint="Convert it to 8 bits: only you know its range."
        )
    if picture.mode in ("P", "PA") and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # straight to RGB, Pillow warns about transparency it cannot keep
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def to_pixels(picture: Image.Image, spec: InputSpec, source: str, limits: Limits) -> npt.NDArray[np.uint8]:
    """[H, W, 3] of the size that the network takes."""
    if spec.resize is not None:
        size = _size_by_shorter_side(picture.size, spec.resize)
        if size[0] * size[1] > limits.pixels:  # a line of pixels grows without bound
            raise ImageTooLargeError(
                f"{source} is {picture.width} × {picture.height}, too narrow to be resized",
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
            "and resizes nothing",
            source=source,
            hint="Resize or crop the image, or export the model with a resize in its preprocessing.",
        )
    return np.asarray(picture)


def _upper_byte(picture: Image.Image, source: str) -> Image.Image:
    values: npt.NDArray[Any] = np.asarray(picture)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise InputError(f"{source} has pixels of more than 16 bits", source=source, hint="Convert it to 8 bits.")
    if picture.mode == "I" and values.max() <= 0xFF:  # wide pixels that hold no more than bytes
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
        )
    # Halves go to the even neighbour, as in the transform that the models were published with.
    left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
    return picture.crop((left, top, left + width, top + height))
