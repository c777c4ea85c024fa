"""A parser of protobuf's text format, as far as a model configuration uses it, written from its description."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["entries", "parse_config"]

_TOKEN = re.compile(r'\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>-?\d+)|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<sign>[{}:]))')
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|(.))")
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b'"': b'"', b"\\": b"\\", b"'": b"'"}


def parse_config(text: str) -> dict[str, list[Any]]:
    """The fields of the message, each with the list of its values. Enum values and booleans are text."""
    tokens = []
    place = 0
    while place < len(text.rstrip()):
        found = _TOKEN.match(text, place)
        assert found, f"no token at {text[place : place + 40]!r}"
        tokens.append((found.lastgroup, found[found.lastgroup or ""]))
        place = found.end()
    fields, end = _fields(tokens, 0)
    assert end == len(tokens), "text after the message"
    return fields


def entries(message: dict[str, list[Any]], field: str) -> dict[str, Any]:
    """A map field: its values by key."""
    found = {one["key"][0]: one["value"][0] for one in message[field]}
    assert len(found) == len(message[field]), "a key is given twice"
    return found


def _fields(tokens: list[tuple[str | None, str]], place: int) -> tuple[dict[str, list[Any]], int]:
    fields: dict[str, list[Any]] = {}
    while place < len(tokens) and tokens[place] != ("sign", "}"):
        kind, name = tokens[place]
        assert kind == "name", f"{name!r} is no field"
        value: Any
        if tokens[place + 1] == ("sign", "{"):
            value, place = _fields(tokens, place + 2)
            assert tokens[place] == ("sign", "}")
        else:
            assert tokens[place + 1] == ("sign", ":")
            kind, word = tokens[place + 2]
            place += 2
            value = int(word) if kind == "number" else _text(word) if kind == "text" else word
        fields.setdefault(name, []).append(value)
        place += 1
    return fields, place


def _text(quoted: str) -> str:
    def character(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 8)]) if found[1] else _LETTERS[found[2]]

    return _ESCAPE.sub(character, quoted[1:-1].encode("ascii")).decode("utf-8")
