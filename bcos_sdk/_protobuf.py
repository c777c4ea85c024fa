"""Read and write the fields of a protobuf message without knowing its type, as far as ONNX files need it.

A message is a sequence of fields. A field is a key, which holds its number and wire type, and a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

__all__ = ["Value", "field", "fields", "integers"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10

Value: TypeAlias = "int | memoryview"
"""An integer, or the bytes of a text, of a nested message or of packed numbers."""


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field, in the order of the file. Raise ValueError if the bytes are no message.

    The value is an int for a varint, else its bytes. Nested messages are bytes: pass them to this function.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field {number} has the unknown wire type {kind}")
        if size > len(message) - place:
            raise ValueError(f"field {number} has {size} bytes, but the message ends after {len(message) - place}")
        yield number, message[place : place + size]
        place += size


def integers(value: Value) -> list[int]:
    """The unsigned integers of one field of a repeated integer: one, or several that are packed into bytes."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = _varint(value, place)
        found.append(number)
    return found


def field(number: int, value: Value | bytes | str) -> bytes:
    """The bytes of a field that holds an integer, a text, or the bytes of a nested message."""
    if isinstance(value, int):
        return _as_varint(number << 3 | _VARINT) + _as_varint(value)
    contents = value.encode("utf-8") if isinstance(value, str) else bytes(value)
    return _as_varint(number << 3 | _BYTES) + _as_varint(len(contents)) + contents


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """The integer at this place, and the place after it."""
    value = 0
    for length, byte in enumerate(message[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * length)
        if byte < 0x80 and value < 1 << 64:
            return value, place + length + 1
    raise ValueError("an integer has no end or more than 64 bits")


def _as_varint(value: int) -> bytes:
    contents = bytearray()
    while value >= 0x80:
        contents.append(value & 0x7F | 0x80)
        value >>= 7
    contents.append(value)
    return bytes(contents)
