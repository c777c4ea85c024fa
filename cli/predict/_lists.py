"""Lists of image names, from a file or from stdin: one name per line, or separated by NUL."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bcos_sdk._untrusted import open_to_read
from bcos_sdk.errors import InputError

__all__ = ["names_in_file", "names_on_stdin"]

_CHUNK = 1 << 16
_LONGEST_NAME = 1 << 16
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_IMAGE_MARKS = {
    "a JPEG image": (b"\xff\xd8\xff",),
    "a PNG image": (b"\x89PNG\r\n\x1a\n",),
    "a GIF image": (b"GIF87a", b"GIF89a"),
    "a TIFF image": (b"II*\0", b"MM\0*"),
}
"""The bytes that files of a format begin with."""


def names_on_stdin(*, null: bool) -> Iterator[str]:
    """The names that stdin lists."""
    yield from _names(sys.stdin.buffer, "stdin", null)


def names_in_file(path: Path, *, null: bool) -> Iterator[str]:
    """The names that a file lists."""
    try:
        with open_to_read(path, pipes=True) as file:
            yield from _names(file, str(path), null)
    except (OSError, ValueError) as error:  # ValueError: the name has a null byte
        raise InputError(
            f"cannot read the list {path}: {getattr(error, 'strerror', None) or error}",
            source=str(path),
            hint="Pass @FILE with the path of a text file that has one image path per line.",
        ) from error


def _names(file: IO[bytes], place: str, null: bool) -> Iterator[str]:
    """Every byte of a name counts, also spaces at its ends. Only the line end is removed."""
    separator = b"\0" if null else b"\n"
    rest = b""
    first = True
    while chunk := file.read(_CHUNK):
        if first:
            _refuse_what_is_no_list(chunk, place, null)
            chunk = chunk if null else chunk.removeprefix(_UTF8_MARK)
            first = False
        if null and not chunk.strip(b"\0"):  # such as /dev/zero
            raise _no_list(place, "binary data")
        *complete, rest = (rest + chunk).split(separator)
        if len(rest) > _LONGEST_NAME:
            raise _no_list(place, f"text with a line of more than {_LONGEST_NAME:,} bytes")
        yield from _decoded(complete, place, null)
    yield from _decoded([rest], place, null)


def _decoded(names: list[bytes], place: str, null: bool) -> Iterator[str]:
    for name in names:
        if null and name:
            yield os.fsdecode(name)
        elif not null and name.strip():
            if b"\0" in name:
                raise _no_list(place, "binary data")
            yield os.fsdecode(name.removesuffix(b"\r"))


def _refuse_what_is_no_list(start: bytes, place: str, null: bool) -> None:
    for kind, marks in _IMAGE_MARKS.items():
        if start.startswith(marks):
            raise _no_list(place, kind)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        raise _no_list(place, "a WebP image")
    if start[:2] == b"BM" and b"\0" in start[:16]:
        raise _no_list(place, "a BMP image")
    if start.startswith(_UTF16_MARKS):
        raise InputError(f"the list in {place} is UTF-16 text", source=place, hint="Save the list as UTF-8 text.")
    if not null and b"\0" in start:
        raise InputError(
            f"the list in {place} has NUL bytes",
            source=place,
            hint="Pass -0 if its names are separated by NUL, as `find -print0` writes them. Otherwise expected is one "
            "image path per line.",
        )


def _no_list(place: str, kind: str) -> InputError:
    return InputError(
        f"{place} is {kind}, expected a list of image paths",
        source=place,
        hint="`-` and @FILE take lists: one image path per line, or with -0 separated by NUL. To classify one image, "
        "pass the path of its file: bcos-sdk predict cat.jpg",
    )
