"""Resize the shorter side, crop the centre: pixel for pixel the published evaluation transform."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import ImageTooLargeError, InputError
from bcos_sdk.limits import Limits

__all__ = ["enlarged_input", "to_pixels"]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


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
