"""The same picture without its metadata: JPEG, PNG and GIF files reduced to what their decoders need.

Decoders spend time and memory on metadata: a file of 20 MB in small EXIF segments takes more than a minute to open, and
a text chunk that is too large makes a good PNG unreadable. Only the orientation and the number of significant bits
matter here, so the rest is left out before a file is decoded. The pixels do not change. See `_tiff.py` for TIFF.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bcos_sdk.errors import UnreadableImageError
from bcos_sdk.images._jpeg_scans import check_scans
from bcos_sdk.images._tiff import TIFF_PREFIXES, slim_tiff

__all__ = ["Slim", "slim"]

_MOST_PARTS = 1 << 16
"""Largest number of segments, chunks or blocks that are walked. Files of cameras and editors have a few thousand."""
_MOST_TEXT = 1 << 18

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_KEPT = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_XMP_OF_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_OF_PNG = b"XML:com.adobe.xmp\0"
_EXIF_OF_PNG_TEXT = "Raw profile type exif"

_MARKER = re.compile(rb"\xff([^\xff])")  # not \xff+: that takes quadratic time if nothing follows
_START_OF_SCAN = 0xDA
_WITHOUT_BODY = frozenset({0x01, *range(0xD0, 0xDA)})
_METADATA_SEGMENTS = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})  # APP0 and APP14 say how colours are stored

_GIF_BLOCK = re.compile(rb"[!,;]")
_GRAPHIC_CONTROL = 0xF9


@dataclass(frozen=True)
class Slim:
    """A file without metadata, and what was read from the metadata, by the names that Pillow gives it in `info`."""

    contents: bytes
    info: dict[str, Any] = field(default_factory=dict)
    pages: bool = False
    """Whether more pages follow the first one, in a TIFF file."""


def slim(contents: bytes, source: str) -> Slim:
    """Leave out the metadata of a JPEG, PNG, GIF or TIFF file. Other files are returned as they are.

    What is damaged is left to the decoder. A file of more than 65,536 parts, or a JPEG
    with too many scans, raises an `UnreadableImageError`.
    """
    if contents.startswith(TIFF_PREFIXES):
        first_page, pages = slim_tiff(contents, source)
        return Slim(first_page, pages=pages)
    for signature, parts in _PARTS.items():
        if contents.startswith(signature):
            info: dict[str, Any] = {}
            kept = bytearray()
            for number, part in enumerate(parts(contents, info)):
                if number >= _MOST_PARTS:
                    raise UnreadableImageError(f"{source} has more than {_MOST_PARTS:,} parts", source=source)
                kept += part
            if parts is _jpeg:
                check_scans(kept, source)
            return Slim(bytes(kept), info)
    return Slim(contents)


def _jpeg(contents: bytes, info: dict[str, Any]) -> Iterator[bytes]:
    """The segments before the first scan, an empty one for metadata, then the rest."""
    yield contents[:2]
    place = 2
    while found := _MARKER.search(contents, place):
        start, marker = found.start(), found[1][0]
        length = int.from_bytes(contents[start + 2 : start + 4], "big")
        if marker == _START_OF_SCAN or start + 2 + length > len(contents):
            yield contents[start:]
            return
        place = start + 2 if marker == 0 or marker in _WITHOUT_BODY else start + 2 + max(2, length)
        if marker in _METADATA_SEGMENTS:
            _note_jpeg_segment(contents[start + 4 : place], info)
            yield b""
        else:
            yield contents[start:place] if marker else b""


def _note_jpeg_segment(body: bytes, info: dict[str, Any]) -> None:
    if body.startswith(b"Exif\0\0"):
        info.setdefault("exif", body)
    elif body.startswith(_XMP_OF_JPEG):
        info.setdefault("xmp", body[len(_XMP_OF_JPEG) :])


def _png(contents: bytes, info: dict[str, Any]) -> Iterator[bytes]:
    """The signature and the chunks up to IEND, an empty one for metadata. A chunk that is cut off ends the file."""
    yield _PNG_SIGNATURE
    place = len(_PNG_SIGNATURE)
    while place < len(contents):
        end = place + 12 + int.from_bytes(contents[place : place + 4], "big")
        name = contents[place + 4 : place + 8]
        if name in _PNG_KEPT or end > len(contents):
            yield contents[place:end]
        else:
            _note_png_chunk(name, memoryview(contents)[place + 8 : end - 4], info)
            yield b""
        if name == b"IEND":
            return
        place = end


def _note_png_chunk(name: bytes, body: memoryview, info: dict[str, Any]) -> None:
    if name == b"eXIf":
        info.setdefault("exif", bytes(body))
    elif name == b"sBIT":
        info.setdefault("sbit", bytes(body))
    elif name == b"iTXt" and body[: len(_XMP_OF_PNG)] == _XMP_OF_PNG:
        info.setdefault("xmp", bytes(body))
    elif name in (b"tEXt", b"zTXt") and bytes(body[: len(_EXIF_OF_PNG_TEXT)]) == _EXIF_OF_PNG_TEXT.encode():
        info.setdefault(_EXIF_OF_PNG_TEXT, _text(name, body[len(_EXIF_OF_PNG_TEXT) + 1 :]))


def _text(name: bytes, body: memoryview) -> str:
    """The first 262,144 characters of a text chunk; an empty text if it is damaged."""
    if name == b"tEXt":
        return bytes(body[:_MOST_TEXT]).decode("latin-1")
    try:
        return zlib.decompressobj().decompress(body[1:], _MOST_TEXT).decode("latin-1")  # body[0]: the only method
    except zlib.error:
        return ""


def _gif(contents: bytes, _info: dict[str, Any]) -> Iterator[bytes]:
    """The header and the graphic control of the first frame, then its image and the rest."""
    flags = contents[10] if len(contents) > 10 else 0
    place = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    yield contents[:place]
    while found := _GIF_BLOCK.search(contents, place):
        start = found.start()
        if contents[start : start + 1] != b"!":
            yield contents[start:]
            return
        place = start + 2
        while place < len(contents) and contents[place]:
            place += 1 + contents[place]
            yield b""
        place += 1
        is_control = contents[start + 1 : start + 2] == bytes([_GRAPHIC_CONTROL])
        yield contents[start:place] if is_control else b""


_PARTS: dict[bytes, Callable[[bytes, dict[str, Any]], Iterator[bytes]]] = {
    b"\xff\xd8\xff": _jpeg,
    _PNG_SIGNATURE: _png,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
}
