"""Where the map of an explanation lies on a picture that the caller wants it drawn on: the original, or its crop."""

from __future__ import annotations

from collections.abc import Sequence

from bcos_sdk.contract import Box
from bcos_sdk.errors import InputError
from bcos_sdk.images import Geometry

__all__ = ["box_on"]

Size = tuple[int, int]
"""Width and height in pixels."""


def box_on(
    picture: Size, shown: Sequence[Size], geometry: Geometry | None, source: str, *, crop: bool | None = None
) -> Box | None:
    """The box of the map in pixels of a picture of the original, or None if the picture shows the crop only.

    `shown` are the sizes at which the crop is known, that of the network's input first. A picture is what `crop` says,
    else what its size says, else what its aspect says. An `InputError` if it has neither aspect, or could be both.
    """
    is_original = crop is not True and geometry is not None and _same_aspect(picture, geometry.original)
    is_crop = crop is not False and _same_aspect(picture, shown[0])
    if geometry is not None and is_original and is_crop:
        if (picture in shown) != (picture == geometry.original):
            is_crop = picture in shown
        elif geometry.box != (0, 0, *geometry.original):  # else they are the same
            raise _could_be_both(picture, source)
    if is_crop:
        return None
    if geometry is None or not is_original:
        raise _is_neither(picture, shown[0], geometry, source)
    left, top, right, bottom = geometry.box
    across, down = picture[0] / geometry.original[0], picture[1] / geometry.original[1]
    return left * across, top * down, right * across, bottom * down


def _could_be_both(picture: Size, source: str) -> InputError:
    return InputError(
        f"the picture to draw on has {picture[0]} × {picture[1]} pixels: it may show the original, or only the crop "
        "that the network received",
        source=source,
        hint="Pass crop=False if it shows the whole original, crop=True if it shows only the crop.",
    )


def _is_neither(picture: Size, crop: Size, geometry: Geometry | None, source: str) -> InputError:
    expected = f"that the network received has {crop[0]} × {crop[1]}"
    hint = "This result does not know its original: its image was passed encoded, or its JSON is of an older version."
    if geometry is not None:
        expected = f"{expected}, the original {geometry.original[0]} × {geometry.original[1]}"
        hint = "Pass the original photograph, at any size, or leave `on` out."
    return InputError(
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
