"""The first page of a TIFF file, reduced to the tags that its decoder needs.

A hostile directory of a few kilobytes can make a decoder read the same megabytes for each of thousands of tags, follow
endless chains of directories, or build millions of strips. The directory is rewritten in place, without metadata and
without further pages, and its counts are checked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from bcos_sdk.errors import UnreadableImageError

__all__ = ["TIFF_PREFIXES", "slim_tiff"]

TIFF_PREFIXES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""The first bytes of a TIFF file: byte order, and 42 or 43 (BigTIFF)."""

_STRIPS_AND_TILES = frozenset({273, 279, 324, 325})
_KEPT = _STRIPS_AND_TILES | {
    *(256, 257, 258, 259, 262, 266, 274, 277, 278, 284),  # size, bits, compression, colours, orientation, planes
    *(280, 281, 340, 341),  # smallest and largest sample
    *(292, 293, 317, 320, 322, 323, 332, 338, 339, 347),  # fax, predictor, palette, tiles, inks, alpha, JPEG tables
    *(512, 513, 514, 515, 517, 518, 519, 520, 521),  # JPEG of TIFF 6.0
    *(529, 530, 531, 532),  # YCbCr
}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""The size in bytes of one value of each type."""

_SHORT, _SAMPLES, _TILE = 3, 277, (322, 323)
_MOST_SAMPLES = 6
_MOST_TILE = 1 << 26
_MOST_ENTRIES = 4096
_MOST_STRIPS = 1 << 18
_MOST_BYTES = 1 << 20
"""Largest size of the other tags. The palette of a picture with 16 bits has 384 KiB."""


@dataclass(frozen=True)
class _Layout:
    """The numbers of a directory in the notation of `struct`: TIFF has 32-bit offsets, BigTIFF 64-bit ones."""

    order: str
    header: int
    offset: str
    count: str

    @property
    def entry(self) -> struct.Struct:
        """Tag, type, number of values, and the values or their offset."""
        return struct.Struct(f"{self.order}HH{self.offset}{struct.calcsize(self.order + self.offset)}s")

    def read(self, kind: str, contents: bytes, place: int) -> int:
        return int(struct.unpack_from(self.order + kind, contents, place)[0])

    def write(self, kind: str, number: int) -> bytes:
        return struct.pack(self.order + kind, number)


def slim_tiff(contents: bytes, source: str) -> tuple[bytes, bool]:
    """Return the file with a shorter first directory as its only one, and whether other pages followed."""
    order = "<" if contents.startswith(b"II") else ">"
    is_big = b"+" in contents[2:4]
    if is_big and order == ">":
        raise UnreadableImageError(
            f"{source} is a big-endian BigTIFF file, which cannot be decoded",
            source=source,
            hint="Save it as PNG or as ordinary TIFF.",
        )
    layout = _Layout(order, 8, "Q", "Q") if is_big else _Layout(order, 4, "I", "H")
    try:
        start = layout.read(layout.offset, contents, layout.header)
        count = layout.read(layout.count, contents, start)
        if count > _MOST_ENTRIES:
            raise _refusal(source, f"its directory has {count:,} entries")
        first = start + struct.calcsize(order + layout.count)
        places = range(first, first + count * layout.entry.size, layout.entry.size)
        entries = [layout.entry.unpack_from(contents, place) for place in places]
        following = layout.read(layout.offset, contents, places.stop)
    except struct.error:
        raise _refusal(source, "its directory is cut off") from None
    kept = {entry[0]: entry for entry in reversed(entries) if entry[0] in _KEPT and entry[1] in _SIZES}
    _check_counts(kept, layout, source)
    directory = b"".join(
        [
            layout.write(layout.count, len(kept)),
            *(layout.entry.pack(*kept[tag]) for tag in sorted(kept)),
            layout.write(layout.offset, 0),
        ]
    )
    return contents[:start] + directory + contents[start + len(directory) :], following != 0


def _check_counts(entries: dict[int, Any], layout: _Layout, source: str) -> None:
    """Refuse what would make a decoder allocate or loop far more than the pixels need."""
    for tag, kind, values, _ in entries.values():
        size = values * _SIZES[kind]
        if (values > _MOST_STRIPS) if tag in _STRIPS_AND_TILES else (size > _MOST_BYTES):
            raise _refusal(source, f"its tag {tag} has {values:,} values")
    samples, width, length = (
        layout.read("H" if kind == _SHORT else "I", value, 0) if number == 1 else 1
        for _, kind, number, value in (entries.get(tag, (tag, _SHORT, 0, b"")) for tag in (_SAMPLES, *_TILE))
    )
    if samples > _MOST_SAMPLES:
        raise _refusal(source, f"its pixels have {samples} samples")
    if width * length > _MOST_TILE:
        raise _refusal(source, f"its tiles have {width} × {length} pixels")


def _refusal(source: str, reason: str) -> UnreadableImageError:
    return UnreadableImageError(f"{source} is damaged: {reason}", source=source)
