"""Read and decode an image file within the limits: size in bytes, format, and pixels as its header states them."""

from __future__ import annotations

import stat
from io import BytesIO
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from bcos_sdk.errors import BcosError, ImageTooLargeError, InputError, UnreadableImageError
from bcos_sdk.limits import Limits

__all__ = ["check_pixels", "open_picture", "read_file", "read_path"]

_PIXELS_HINT = "Make the image smaller, or raise Limits(pixels=…)."


def read_path(path: Path, source: str, limits: Limits) -> bytes:
    """Return the contents of a regular file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableImageError(f"{source} is a folder", source=source, hint="Pass the files in it.")
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImageError(f"{source} is not a regular file", source=source)
        if status.st_size > limits.bytes:
            raise _too_many_bytes(source, limits)
        with path.open("rb") as file:
            return read_file(file, source, limits)
    except FileNotFoundError:
        raise UnreadableImageError(f"there is no file {source}", source=source) from None
    except (OSError, ValueError) as error:  # ValueError: the name contains a null byte
        reason = getattr(error, "strerror", None) or error
        raise UnreadableImageError(f"cannot read {source}: {reason}", source=source) from error


def read_file(file: IO[bytes], source: str, limits: Limits) -> bytes:
    """Return the rest of an open file. Stop with an error after `limits.bytes`."""
    contents = bytearray()
    while len(contents) <= limits.bytes:
        part = file.read(limits.bytes + 1 - len(contents))  # a pipe may return fewer bytes
        if isinstance(part, str):
            raise InputError(f"{source} was opened as text", source=source, hint='Open it with mode "rb".')
        if not part:
            return bytes(contents)
        contents += part
    raise _too_many_bytes(source, limits)


def open_picture(contents: bytes, source: str, limits: Limits) -> Image.Image:
    """Decode a picture. The size in its header is checked before the pixels are decoded."""
    if len(contents) > limits.bytes:
        raise _too_many_bytes(source, limits)
    try:
        picture = Image.open(BytesIO(contents), formats=limits.formats)
        check_pixels(picture, source, limits)
        picture.load()
    except UnidentifiedImageError:
        raise UnreadableImageError(
            f"{source} is not an image of an allowed format",
            source=source,
            hint=f"Allowed formats are {', '.join(limits.formats)}. Limits(formats=…) sets others.",
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(f"{source} is too large: {error}", source=source, hint=_PIXELS_HINT) from None
    except MemoryError:
        raise ImageTooLargeError(f"{source} does not fit into memory", source=source, hint=_PIXELS_HINT) from None
    except BcosError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error and more
        raise UnreadableImageError(f"{source} is damaged: {error}", source=source) from error
    return picture


def check_pixels(picture: Image.Image, source: str, limits: Limits) -> None:
    """Raise an error if the picture has no pixels, or more than the limit."""
    width, height = picture.size
    if not width * height:
        raise InputError(f"{source} has no pixels", source=source, hint="Pass an image with at least one pixel.")
    if width * height > limits.pixels:
        raise ImageTooLargeError(
            f"{source} has {width} × {height} pixels, the limit is {limits.pixels:,}", source=source, hint=_PIXELS_HINT
        )


def _too_many_bytes(source: str, limits: Limits) -> ImageTooLargeError:
    return ImageTooLargeError(
        f"{source} has more than {limits.bytes:,} bytes",
        source=source,
        hint="Make the file smaller, or raise Limits(bytes=…).",
    )
