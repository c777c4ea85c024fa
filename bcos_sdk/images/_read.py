"""Read and decode an image file within the limits: size in bytes, format, and pixels as its header states them."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from bcos_sdk._files import open_without_blocking
from bcos_sdk.errors import BcosError, ImageTooLargeError, InputError, UnreadableImageError
from bcos_sdk.images._containers import slim
from bcos_sdk.images._deep_colour import is_deep_colour, load_deep_colour, refuse_separate_planes
from bcos_sdk.images._depth import Notes
from bcos_sdk.images._libtiff import libtiff_silenced
from bcos_sdk.images._tiff import TIFF_PREFIXES
from bcos_sdk.images._webp import ANIMATION_COPIES, check_chunks, is_webp, webp_size
from bcos_sdk.limits import MOST_PIXELS, Limits

__all__ = ["check_pixels", "open_picture", "read_file", "read_path", "too_many_bytes"]

_PAGES = "the file has several pages: the first one is used"


def read_path(path: Path, source: str, limits: Limits) -> bytes:
    """Return the contents of a regular file."""
    try:
        _check_status(path.stat(), source, limits)  # opening a device may have an effect
        with open_without_blocking(path) as file:
            _check_status(os.fstat(file.fileno()), source, limits)  # another file may have taken its place
            return read_file(file, source, limits)
    except FileNotFoundError:
        raise UnreadableImageError(f"there is no file {source}", source=source) from None
    except (OSError, ValueError) as error:  # ValueError: the name contains a null byte
        reason = getattr(error, "strerror", None) or error
        raise UnreadableImageError(f"cannot read {source}: {reason}", source=source) from error


def _check_status(status: os.stat_result, source: str, limits: Limits) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableImageError(f"{source} is a folder", source=source, hint="Pass the files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableImageError(f"{source} is not a regular file", source=source)
    if status.st_size > limits.bytes:
        raise too_many_bytes(source, limits)


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
    raise too_many_bytes(source, limits)


def open_picture(contents: bytes, source: str, limits: Limits) -> tuple[Image.Image, Notes]:
    """Decode a picture, without its metadata. The size in its header is checked before the pixels are decoded."""
    try:
        _check_webp(contents, source, limits)
        file = slim(contents, source)

        def open_checked() -> Image.Image:
            picture = Image.open(BytesIO(file.contents), formats=limits.formats)
            check_pixels(picture, source, limits)
            refuse_separate_planes(picture, source)
            picture.info.update(file.info)
            return picture

        notes = (_PAGES,) if file.pages else ()
        picture = open_checked()
        with libtiff_silenced() if picture.format == "TIFF" else nullcontext():
            if is_deep_colour(picture):
                picture, scaling = load_deep_colour(open_checked, source)
                return picture, (*notes, *scaling)
            picture.load()
        return picture, notes
    except UnidentifiedImageError:
        raise _not_readable(contents, source, limits) from None
    except Image.DecompressionBombError as error:
        raise ImageTooLargeError(
            f"{source} is too large: {error}", source=source, hint=_pixels_hint(MOST_PIXELS + 1)
        ) from None
    except Image.DecompressionBombWarning as error:
        hint = "Make the image smaller, or do not turn this warning of Pillow into an error."
        raise ImageTooLargeError(f"{source} is too large: {error}", source=source, hint=hint) from None
    except (BcosError, MemoryError):
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error and more
        raise UnreadableImageError(f"{source} is damaged: {error}", source=source) from error


def _check_webp(contents: bytes, source: str, limits: Limits) -> None:
    if not is_webp(contents) or "WEBP" not in limits.formats:
        return
    check_chunks(contents, source)
    if size := webp_size(contents):
        width, height, animated = size
        _check_size(width, height, source, limits)
        if animated and width * height > limits.pixels // ANIMATION_COPIES:
            raise ImageTooLargeError(
                f"{source} is an animation of {width} × {height} pixels, the limit for animations is "
                f"{limits.pixels // ANIMATION_COPIES:,}, a quarter of that for other pictures",
                source=source,
                hint=_pixels_hint(ANIMATION_COPIES * width * height),
            )


def check_pixels(picture: Image.Image, source: str, limits: Limits) -> None:
    """Raise an error if the picture has no pixels, or more than the limit."""
    _check_size(*picture.size, source, limits)


def _check_size(width: int, height: int, source: str, limits: Limits) -> None:
    """Raise an error if there are no pixels, or more than the limit."""
    if not width * height:
        raise InputError(f"{source} has no pixels", source=source, hint="Pass an image with at least one pixel.")
    if width * height > limits.pixels:
        raise ImageTooLargeError(
            f"{source} has {width} × {height} pixels, the limit is {limits.pixels:,}",
            source=source,
            hint=_pixels_hint(width * height),
        )


def _pixels_hint(pixels: int) -> str:
    if pixels <= MOST_PIXELS:
        return "Make the image smaller, or raise Limits(pixels=…)."
    return f"Make the image smaller: Limits(pixels=…) can be raised to at most {MOST_PIXELS:,}."


def _not_readable(contents: bytes, source: str, limits: Limits) -> UnreadableImageError:
    if contents.startswith(TIFF_PREFIXES) and "TIFF" in limits.formats:
        return UnreadableImageError(
            f"{source} is a TIFF file of a kind that cannot be decoded",
            source=source,
            hint="Save it as PNG, or as ordinary TIFF with 8 or 16 bits per channel, grey or RGB.",
        )
    return UnreadableImageError(
        f"{source} is not an image of an allowed format",
        source=source,
        hint=f"Allowed formats are {', '.join(limits.formats)}. Limits(formats=…) sets others.",
    )


def too_many_bytes(source: str, limits: Limits) -> ImageTooLargeError:
    return ImageTooLargeError(
        f"{source} has more than {limits.bytes:,} bytes",
        source=source,
        hint="Make the file smaller, or raise Limits(bytes=…).",
    )
