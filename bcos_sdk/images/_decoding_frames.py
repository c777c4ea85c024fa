"""Messages between the client and its decoders: the length of a JSON object, the object, then as many bytes as it says.

JSON and plain bytes, not pickle: what a decoder sends must not be able to run code in the client.
"""

from __future__ import annotations

import json
import struct
from io import RawIOBase
from typing import Any, TypeAlias

__all__ = ["Header", "read_body", "read_header", "write_message"]

Header: TypeAlias = dict[str, Any]

_LENGTH = struct.Struct(">I")
_MOST_HEADER = 1 << 20


def write_message(pipe: RawIOBase, header: Header, *bodies: bytes | memoryview) -> None:
    """Write a header and the bytes that follow it."""
    text = json.dumps(header).encode("ascii")
    for part in (_LENGTH.pack(len(text)) + text, *bodies):
        rest = memoryview(part).cast("B")
        while rest:
            rest = rest[pipe.write(rest) or 0 :]


def read_header(pipe: RawIOBase) -> Header:
    """Read a header. Raise an `EOFError` if the other process has ended, a `ValueError` if it sent something else."""
    (length,) = _LENGTH.unpack(read_body(pipe, _LENGTH.size))
    if length > _MOST_HEADER:
        raise ValueError(f"a header of {length:,} bytes")
    header = json.loads(read_body(pipe, length))
    if not isinstance(header, dict):
        raise ValueError("a header that is no object")
    return header


def read_body(pipe: RawIOBase, size: int) -> bytearray:
    """Read exactly so many bytes."""
    body = bytearray(size)
    rest = memoryview(body)
    while rest:
        count = pipe.readinto(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return body
