"""Upper bounds on the input of a client. All of them have defaults; a service may raise or lower them."""

from __future__ import annotations

import os

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

__all__ = ["MOST_PIXELS", "MOST_THREADS", "Limits"]

MOST_PIXELS = 178_956_970
"""The largest limit on pixels. Pillow does not decode larger images."""

MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))
"""The largest number of CPU threads. ONNX Runtime starts as many as it is told, and more than this slow it down until
it hangs; OpenVINO starts at most one per core."""


class Limits(BaseModel):
    """Bounds on each image (`bytes`, `pixels`, `formats`, `targets`), each call (`images`) and the client (`queue`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: PositiveInt = 64 << 20
    """Largest size in bytes of an encoded image file."""

    pixels: PositiveInt = Field(default=64_000_000, le=MOST_PIXELS)
    """Largest width × height. It is checked in the header, before pixels are decoded. Pillow sets the upper bound."""

    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
    """Image formats that may be decoded, by Pillow's names. Pillow's other decoders are not used."""

    @field_validator("formats")
    @classmethod
    def _formats_are_known(cls, formats: tuple[str, ...]) -> tuple[str, ...]:
        Image.init()
        if unknown := [name for name in formats if name not in Image.OPEN]:
            raise ValueError(
                f"Pillow cannot read the formats {', '.join(unknown)}; it can read {', '.join(sorted(Image.OPEN))}"
            )
        return formats

    images: PositiveInt = 4096
    """Largest number of images in one `predict` or `explain`, which keep all results in memory; not for streams."""

    targets: PositiveInt = 1024
    """Largest number of targets of one image. At 224 × 224 pixels each needs 0.2 MB, and 1.2 MB more with W(x). The
    default allows all classes of ImageNet."""

    queue: PositiveInt = 256
    """Largest number of decoded images that wait for the device."""
