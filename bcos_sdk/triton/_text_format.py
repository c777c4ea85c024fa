"""The text format of protobuf, as far as a model configuration needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

__all__ = ["Message", "Word", "text_format"]

_ESCAPES = {ord("\n"): "\\n", ord('"'): '\\"', ord("\\"): "\\\\"}


class Word(str):
    """The name of an enum value. It is written without quotes."""

    __slots__ = ()


Scalar: TypeAlias = bool | int | str | Word
Message: TypeAlias = Mapping[str, "Scalar | Sequence[Scalar] | Message | Sequence[Message]"]
"""Fields by name. A list is a repeated field."""


def text_format(message: Message) -> str:
    """The message as text that `google.protobuf.text_format` parses. It has ASCII characters only."""
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: Message) -> Iterator[str]:
    for name, value in message.items():
        for one in [value] if isinstance(value, (str, int, Mapping)) else value:
            if isinstance(one, Mapping):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(one))
                yield "}"
            else:
                yield f"{name}: {_scalar(one)}"


def _scalar(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word) or not isinstance(value, str):
        return str(value)
    return f'"{"".join(map(_escaped, value.encode("utf-8")))}"'


def _escaped(byte: int) -> str:
    """A byte of a text, with an escape for quotes, backslashes, control characters and everything beyond ASCII."""
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
