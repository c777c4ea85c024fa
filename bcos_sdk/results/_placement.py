"""Where the map of an explanation lies on a picture that the caller wants it drawn on: the original, or its crop."""

from __future__ import annotations

from bcos_sdk.contract import Box
from bcos_sdk.errors import InputError
from bcos_sdk.images import Geometry

__all__ = ["box_on"]

Size = tuple[int, int]
"""Width and height in pixels."""


def box_on(picture: Size, crop: Size, geometry: Geometry | None, source: str) -> Box | None:
    """The box of the map in pixels of a picture of the original, or None if the picture shows the crop only.

    A picture is what its size says, else what its aspect says. If original and crop have the same aspect, and the
    picture has the size of neither, it is taken for the original. Any other aspect raises an `InputError`.
    """
    if geometry is not None:
        original = geometry.original
        if picture == original or (picture != crop and _same_aspect(picture, original)):
            left, top, right, bottom = geometry.box
            across, down = picture[0] / original[0], picture[1] / original[1]
            return left * across, top * down, right * across, bottom * down
    if _same_aspect(picture, crop):
        return None
    expected = f"that the network received has {crop[0]} × {crop[1]}"
    hint = "This result does not know its original: its image was passed encoded, or its JSON is of an older version."
    if geometry is not None:
        expected = f"{expected}, the original {geometry.original[0]} × {geometry.original[1]}"
        hint = "Pass the original photograph, at any size, or leave `on` out."
    raise InputError(
        f"the picture to draw on has {picture[0]} × {picture[1]} pixels and another aspect: the crop {expected}",
        source=source,
        hint=hint,
    )


def _same_aspect(some: Size, other: Size) -> bool:
    """Whether one is the other, resized and rounded to whole pixels."""
    (width, height), (other_width, other_height) = some, other
    return (
        abs(width - height * other_width / other_height) <= 1 or abs(height - width * other_height / other_width) <= 1
    )
