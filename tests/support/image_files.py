"""Image files written byte by byte, with what Pillow cannot write: 16-bit colours, stated ranges, large metadata."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["exif", "exif_directory", "png", "png_chunk", "tiff", "with_chunks", "with_segments"]

_PNG_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(values: npt.NDArray[Any], *chunks: bytes) -> bytes:
    """A PNG of uint8 or uint16 values [H, W] or [H, W, channels], with these chunks before the pixels."""
    height, width = values.shape[:2]
    channels = values.shape[2] if values.ndim == 3 else 1
    bits = values.dtype.itemsize * 8
    header = struct.pack(">IIBBBBB", width, height, bits, _PNG_COLOUR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(values.dtype.newbyteorder(">")).tobytes() for row in values)
    body = [png_chunk(b"IHDR", header), *chunks, png_chunk(b"IDAT", zlib.compress(rows)), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def with_chunks(contents: bytes, *chunks: bytes) -> bytes:
    """A PNG with these chunks after its header."""
    return contents[:33] + b"".join(chunks) + contents[33:]


def with_segments(contents: bytes, *segments: tuple[int, bytes]) -> bytes:
    """A JPEG with these segments, given as marker and body, at its beginning."""
    added = b"".join(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in segments)
    return contents[:2] + added + contents[2:]


def exif_directory(entries: Sequence[tuple[int, int, int, int]], data: bytes = b"") -> bytes:
    """A TIFF structure with one directory of (tag, type, count, value or offset), followed by data."""
    packed = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + packed + struct.pack("<I", 0) + data


def exif(orientation: int, rationals: int = 0) -> bytes:
    """EXIF with an orientation and another tag of this many rational numbers."""
    entries = [(0x0112, 3, 1, orientation), (40000, 5, rationals, 38)]
    return exif_directory(entries, b"\x07\0\0\0\x09\0\0\0" * rationals)


def tiff(
    values: npt.NDArray[Any],
    *,
    order: Literal["<", ">"] = "<",
    compressed: bool = False,
    white_is_zero: bool = False,
    separate: bool = False,
    tags: dict[int, int] | None = None,
    more: Sequence[tuple[int, int, int, int]] = (),
) -> bytes:
    """A TIFF of uint8 or uint16 values [H, W] or [H, W, channels], in one strip or, if `separate`, one per channel."""
    height, width = values.shape[:2]
    channels = values.shape[2] if values.ndim == 3 else 1
    bits = values.dtype.itemsize * 8
    stored = values.astype(values.dtype.newbyteorder(order))
    planes = [stored[..., channel] for channel in range(channels)] if separate else [stored]
    strips = [zlib.compress(plane.tobytes()) if compressed else plane.tobytes() for plane in planes]
    places = np.cumsum([8, *map(len, strips)]).tolist()
    lists = struct.pack(f"{order}{channels}H", *[bits] * channels)
    lists += struct.pack(f"{order}{2 * len(strips)}I", *places[:-1], *map(len, strips))
    directory = places[-1] + len(lists)

    def listed(kind: int, count: int, single: int, offset: int) -> tuple[int, int, int]:
        return (kind, 1, single) if count == 1 else (kind, count, places[-1] + offset)

    photometric = 2 if channels >= 3 else 0 if white_is_zero else 1
    entries: dict[int, tuple[int, int, int]] = {
        256: (4, 1, width),
        257: (4, 1, height),
        258: listed(3, channels, bits, 0),
        259: (3, 1, 8 if compressed else 1),
        262: (3, 1, photometric),
        273: listed(4, len(strips), places[0], 2 * channels),
        277: (3, 1, channels),
        278: (4, 1, height),
        279: listed(4, len(strips), len(strips[0]), 2 * channels + 4 * len(strips)),
        284: (3, 1, 2 if separate else 1),
        **{tag: (3, 1, value) for tag, value in (tags or {}).items()},
        **{tag: (kind, count, value) for tag, kind, count, value in more},
    }
    magic = b"II*\0" if order == "<" else b"MM\0*"
    packed = b""
    for tag, (kind, count, value) in sorted(entries.items()):
        inline = struct.pack(f"{order}HH", value, 0) if kind == 3 and count == 1 else struct.pack(f"{order}I", value)
        packed += struct.pack(f"{order}HHI", tag, kind, count) + inline
    end = struct.pack(f"{order}I", 0)
    return (
        magic
        + struct.pack(f"{order}I", directory)
        + b"".join(strips)
        + lists
        + struct.pack(f"{order}H", len(entries))
        + packed
        + end
    )
