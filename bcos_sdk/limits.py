"""What a client takes in at most. Every limit is on by default; a service that needs more says so."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, PositiveInt

__all__ = ["Limits"]


class Limits(BaseModel):
    """Bounds on one image (`bytes`, `pixels`, `formats`), on one call (`images`) and on the client (`queue`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: PositiveInt = 64 << 20
    """Largest file or bytes object that is decoded."""

    pixels: PositiveInt = 64_000_000
    """Largest width × height, read from the header before anything is decoded."""

    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
    """Image formats that are decoded, by Pillow's names; every other decoder stays out of reach."""

    images: PositiveInt = 4096
    """Most images of one `predict` or `explain`, whose results are all held in memory; streams have no bound."""

    queue: PositiveInt = 256
    """Most images, decoded and encoded, that wait for the device."""
