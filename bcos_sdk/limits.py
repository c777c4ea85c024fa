"""What a client takes in at most. Every limit is on by default; a service that needs more says so."""

from __future__ import annotations

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

__all__ = ["Limits"]


class Limits(BaseModel):
    """Bounds on one image (`bytes`, `pixels`, `formats`), on one call (`images`) and on the client (`queue`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: PositiveInt = 64 << 20
    """Largest file or bytes object that is decoded."""

    pixels: PositiveInt = Field(default=64_000_000, le=178_956_970)
    """Largest width × height, read from the header before anything is decoded; Pillow itself opens no more."""

    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
    """Image formats that are decoded, by Pillow's names; every other decoder stays out of reach."""

    @field_validator("formats")
    @classmethod
    def _formats_are_known(cls, formats: tuple[str, ...]) -> tuple[str, ...]:
        Image.init()
        if unknown := [name for name in formats if name not in Image.OPEN]:
            raise ValueError(f"Pillow does not read {', '.join(unknown)}; it reads {', '.join(sorted(Image.OPEN))}")
        return formats

    images: PositiveInt = 4096
    """Most images of one `predict` or `explain`, whose results are all held in memory; streams have no bound."""

    queue: PositiveInt = 256
    """Most images, decoded and encoded, that wait for the device."""
