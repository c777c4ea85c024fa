"""The size of a WebP picture and the number of its chunks, read before a decoder allocates its canvas."""

from __future__ import annotations

from bcos_sdk.errors import UnreadableImageError

__all__ = ["ANIMATION_COPIES", "check_chunks", "is_webp", "webp_size"]

ANIMATION_COPIES = 4
"""How many copies of its canvas an animation takes: so its limit on pixels is a quarter of that of other pictures."""
_MOST_CHUNKS = 1 << 16
_FIRST = 12
_ANIMATED = 0x02


def is_webp(contents: bytes) -> bool:
    return contents.startswith(b"RIFF") and contents[8:12] == b"WEBP"


def webp_size(contents: bytes) -> tuple[int, int, bool] | None:
    """Width and height in the first chunk, and whether it is an animation; None if the chunk has another meaning."""
    name, body = contents[_FIRST : _FIRST + 4], contents[_FIRST + 8 : _FIRST + 18]
    if len(body) < 10:
        return None
    if name == b"VP8X":
        return _number(body[4:7]) + 1, _number(body[7:10]) + 1, bool(body[0] & _ANIMATED)
    if name == b"VP8L":
        bits = _number(body[1:5])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, False
    if name == b"VP8 ":
        return _number(body[6:8]) & 0x3FFF, _number(body[8:10]) & 0x3FFF, False
    return None


def check_chunks(contents: bytes, source: str) -> None:
    """Raise an `UnreadableImageError` if there are more than 65,536 chunks."""
    chunks, place, end = 0, _FIRST, min(len(contents), 8 + _number(contents[4:8]))
    while place < end:
        chunks += 1
        if chunks > _MOST_CHUNKS:
            raise UnreadableImageError(f"{source} has more than {_MOST_CHUNKS:,} parts", source=source)
        size = _number(contents[place + 4 : place + 8])
        place += 8 + size + size % 2


def _number(body: bytes) -> int:
    return int.from_bytes(body, "little")
