"""Where the network's input lies in the original: its shorter side is resized, then its centre is cropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from bcos_sdk.contract import Box, InputSpec

__all__ = ["Geometry", "Placement"]

_Side = Annotated[int, Field(ge=1, lt=1 << 31)]


class Geometry(BaseModel):
    """The part of the original that the network received."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    original: tuple[_Side, _Side]
    """Width and height of the original in pixels, after rotation by its EXIF tag."""
    box: Box
    """Left, top, right and bottom of the part, in pixels of the original; fractions if the original was resized."""

    @model_validator(mode="after")
    def _box_lies_inside(self) -> Self:
        (width, height), (left, top, right, bottom) = self.original, self.box
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            raise ValueError(f"the box {self.box} does not lie inside {width} × {height} pixels")
        return self


@dataclass(frozen=True)
class Placement:
    """Resize a picture of the size `original` to `resized`, then cut out `crop`: whole pixels, width before height."""

    original: tuple[int, int]
    resized: tuple[int, int]
    crop: tuple[int, int, int, int]

    @classmethod
    def of(cls, original: tuple[int, int], spec: InputSpec) -> Placement:
        """The placement that the published evaluation transform uses. The crop may be larger than the picture."""
        width, height = resized = original if spec.resize is None else _size_by_shorter_side(original, spec.resize)
        if spec.crop is None:
            return cls(original, resized, (0, 0, width, height))
        # Round half to even, like the published evaluation transform.
        left, top = round((width - spec.crop[1]) / 2), round((height - spec.crop[0]) / 2)
        return cls(original, resized, (left, top, left + spec.crop[1], top + spec.crop[0]))

    @property
    def geometry(self) -> Geometry:
        """The crop in pixels of the original."""
        (width, height), (left, top, right, bottom) = self.resized, self.crop
        across, down = self.original[0] / width, self.original[1] / height
        box = (left * across, top * down, min(right * across, self.original[0]), min(bottom * down, self.original[1]))
        return Geometry(original=self.original, box=box)


def _size_by_shorter_side(size: tuple[int, int], side: int) -> tuple[int, int]:
    width, height = size
    return (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
