"""The work of decoding a JPEG is at least scans × pixels, and a scan may have 31 bytes.

A file of 400 kB with 1,500 scans takes half a minute. Encoders write at most about twenty scans.
"""

from __future__ import annotations

import re

from bcos_sdk.errors import UnreadableImageError

__all__ = ["check_scans"]

_MOST_SCANS = 100
_MOST_WORK = 1 << 31
"""Largest scans × pixels, about a second of decoding: 40 scans of 50 megapixels."""
_FEW_SCANS = 12
"""So many scans are within `_MOST_WORK` for the largest picture that Pillow decodes."""
_MOST_MARKERS = 1 << 16

_SCAN = b"\xff\xda"
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")  # coded pixels contain FF 00 and restart markers D0 to D7
_START_OF_SCAN, _START_OF_IMAGE, _END_OF_IMAGE, _TEMPORARY = 0xDA, 0xD8, 0xD9, 0x01
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset({0xC0, 0xC1, 0xC9})


def check_scans(contents: bytes | bytearray, source: str) -> None:
    """Raise an `UnreadableImageError` if a JPEG has more scans than any encoder writes."""
    frames: list[bytes | bytearray] = []
    scans = pixels = markers = place = 0
    while found := _MARKER.search(contents, place):
        start, marker = found.start(), found[1][0]
        markers += 1
        if marker == _END_OF_IMAGE:
            break
        if marker in (_START_OF_IMAGE, _TEMPORARY):
            place = start + 2
            continue
        if marker in _FRAMES:
            frame = contents[start + 1 : start + 10]
            frames.append(frame)
            pixels = max(pixels, int.from_bytes(frame[4:6], "big") * int.from_bytes(frame[6:8], "big"))
        if marker == _START_OF_SCAN:
            scans += 1
            if scans == 1 and (_is_whole(frames, contents[start : start + 5]) or _has_few(contents, start)):
                return
        if scans > _MOST_SCANS or scans * pixels > _MOST_WORK or markers > _MOST_MARKERS:
            of = f"{scans} scans of {pixels:,} pixels" if markers <= _MOST_MARKERS else f"{markers:,} markers"
            raise UnreadableImageError(
                f"{source} takes too long to decode: it has {of} or more",
                source=source,
                hint="Save it again as ordinary JPEG.",
            )
        place = start + 2 + max(2, int.from_bytes(contents[start + 2 : start + 4], "big"))


def _is_whole(frames: list[bytes | bytearray], scan: bytes | bytearray) -> bool:
    """Whether the first scan has all of the picture, as in files that are not progressive. The decoder then stops."""
    return len(frames) == 1 and len(frames[0]) == 9 and frames[0][0] in _SEQUENTIAL and frames[0][8] == scan[-1]


def _has_few(contents: bytes | bytearray, start: int) -> bool:
    """Whether the number of scans cannot be over the bounds. Other bytes may look like a scan, so it may be smaller."""
    return contents.count(_SCAN, start) <= _FEW_SCANS
