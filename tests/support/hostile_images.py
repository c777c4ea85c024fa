"""Small image files that take a decoder much time or memory."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image

from support.image_files import png_chunk

__all__ = ["empty_png_chunks", "empty_webp_chunks", "jpeg_of_scans", "webp_canvas"]


def jpeg_of_scans(scans: int, size: tuple[int, int]) -> bytes:
    """A black progressive JPEG, one of whose scans, which has a few bytes, is repeated."""
    file = io.BytesIO()
    Image.new("RGB", size).save(file, "JPEG", progressive=True)
    contents = file.getvalue()
    first = contents.index(b"\xff\xda")
    second = contents.index(b"\xff\xda", first + 2)
    end = second + 2
    while contents[end] != 0xFF or contents[end + 1] == 0:
        end += 1
    return contents[:end] + contents[second:end] * (scans - contents.count(b"\xff\xda")) + contents[end:]


def webp_canvas(width: int, height: int, *, animated: bool) -> bytes:
    """A WebP file of less than 100 bytes: a canvas of this size with a picture of one pixel."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "WEBP", lossless=True)
    pixel = file.getvalue()[12:]
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = _webp_chunk(b"VP8X", bytes([2 if animated else 0, 0, 0, 0]) + sides)
    body += _webp_chunk(b"ANIM", bytes(6)) + _webp_chunk(b"ANMF", bytes(16) + pixel) if animated else pixel
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def empty_webp_chunks(count: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "WEBP", lossless=True, exif=b"Exif\0\0")
    body = file.getvalue()[12:] + _webp_chunk(b"JUNK", b"") * count
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def empty_png_chunks(name: bytes, count: int) -> bytes:
    """A PNG with 16-bit colours, which may be decoded three times, and empty chunks before its pixels."""
    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(8 * 49)))
    parts = [png_chunk(b"IHDR", header), png_chunk(name, b"") * count, pixels, png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _webp_chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)
