"""Upper bounds on the input of a client. All of them have defaults; a service may raise or lower them."""

from __future__ import annotations

import os
from typing import Literal

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

__all__ = ["LARGEST_DOWNLOAD", "MOST_PIXELS", "MOST_THREADS", "Limits"]

LARGEST_DOWNLOAD = 4 << 30
"""The most bytes of a weights file that is downloaded, if the registry does not state its size. The largest published
file has about 0.7e9."""

MOST_PIXELS = 178_956_970
"""The largest limit on pixels. Pillow does not decode larger images."""

MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))
"""The largest number of CPU threads. ONNX Runtime starts as many as it is told, and more than this slow it down until
it hangs; OpenVINO starts at most one per core."""


class Limits(BaseModel):
    """Bounds on each image (`bytes`, `pixels`, `formats`, `targets`), each call (`images`) and the client (`queue`).

    For images from strangers use `Limits(decoding="isolated")`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: PositiveInt = 64 << 20
    """Largest size in bytes of an encoded image file."""

    pixels: PositiveInt = Field(default=50 << 20, le=MOST_PIXELS)
    """Largest width × height. It is checked in the header, before pixels are decoded. Pillow sets the upper bound.

    A decoder takes 4 to 25 bytes per pixel. The default admits cameras of 50 megapixels (8192 × 6144).
    """

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

    decoding: Literal["in_process", "isolated"] = "in_process"
    """Where paths, bytes and files are decoded. "isolated": in child processes, which can be ended.

    A decoder that takes too long, needs too much memory or crashes is then the error of one image, and nothing else
    is affected. PIL images and arrays are already decoded, so they are loaded in this process.
    """

    decoding_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Isolated decoding: largest time for one image. The child process is then killed and replaced."""

    decoding_memory: int = Field(default=2 << 30, ge=64 << 20, le=1 << 40)
    """Isolated decoding: largest memory in bytes for one image, in addition to the idle process. Linux only."""

    images: PositiveInt = 4096
    """Largest number of images in one `predict` or `explain`, which keep all results in memory; not for streams."""

    targets: PositiveInt = 1024
    """Largest number of targets of one image. At 224 × 224 pixels each needs 0.2 MB, and 1.2 MB more with W(x). The
    default allows all classes of ImageNet."""

    queue: PositiveInt = 256
    """Largest number of decoded images that wait for the device."""
