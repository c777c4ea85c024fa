"""Parse pybind11 docstrings: the overloads of a member, their arguments by name and type, and their return type.

Types stay text, as pybind11 writes them. `fits` follows the conversions of pybind11 for built-in types.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass

__all__ = ["Overload", "Types", "fits", "overloads", "split"]

Types = Callable[[str], "type | None"]
"""Maps the text of a type to its stand-in class; None if the text names no class of the bindings."""

_ARGUMENT = re.compile(r"(?P<name>\w+)(?:: (?P<type>.+?))?(?: = (?P<default>.+))?")
_OPENING, _CLOSING = "([{<", ")]}>"


@dataclass(frozen=True)
class Overload:
    """One signature of a member."""

    text: str
    signature: inspect.Signature
    returns: str

    def bind(self, args: Sequence[object], keywords: dict[str, object], types: Types) -> dict[str, object] | None:
        """The arguments by name, with `self`, if this overload accepts them; else None."""
        try:
            bound = self.signature.bind(*args, **keywords).arguments
        except TypeError:
            return None
        for name, value in bound.items():
            parameter = self.signature.parameters[name]
            if value is None and parameter.default == "None":
                continue
            if not fits(parameter.annotation, value, types):
                return None
        return bound


def overloads(name: str, docstring: str | None) -> list[Overload]:
    """Every signature that the docstring of `name` declares. For a property, `name` is empty."""
    line = re.compile(rf"^(?:\d+\. )?(?P<text>{re.escape(name)}\((?P<arguments>.*)\) -> (?P<returns>.+?))\s*$", re.M)
    return [
        Overload(found["text"], inspect.Signature(list(_parameters(found["arguments"]))), found["returns"])
        for found in line.finditer(docstring or "")
    ]


def _parameters(text: str) -> Iterator[inspect.Parameter]:
    for part in split(text, ","):
        found = _ARGUMENT.fullmatch(part)
        if found is None:  # the markers `/` and `*`
            continue
        # pybind11 names unnamed arguments arg0, arg1, …; these are positional-only.
        unnamed = re.fullmatch(r"self|arg\d+", found["name"])
        yield inspect.Parameter(
            found["name"],
            inspect.Parameter.POSITIONAL_ONLY if unnamed else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if found["default"] is None else found["default"],
            annotation=found["type"] or "object",
        )


def split(text: str, separator: str) -> list[str]:
    """Split at each separator that is outside all brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def fits(declared: str, value: object, types: Types) -> bool:
    """Whether pybind11 accepts this value for an argument of the declared type."""
    alternatives = split(declared, "|")
    if len(alternatives) > 1:
        return any(fits(alternative, value, types) for alternative in alternatives)
    known = types(declared)
    if known is not None:
        return isinstance(value, known) or (known.__name__.startswith("Dims") and _is_shape(value))
    kind = declared.split("[")[0].rsplit(".", 1)[-1]
    return _BUILT_IN[kind](value) if kind in _BUILT_IN else True


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, Sized)
        and isinstance(value, Iterable)
        and all(hasattr(extent, "__index__") for extent in value)
    )


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]  # tests whether it is a buffer
    except TypeError:
        return False
    return True


_BUILT_IN: dict[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: hasattr(value, "__bool__"),
    "int": lambda value: hasattr(value, "__index__"),
    "SupportsInt": lambda value: hasattr(value, "__index__"),
    "SupportsIndex": lambda value: hasattr(value, "__index__"),
    "float": lambda value: hasattr(value, "__float__"),
    "SupportsFloat": lambda value: hasattr(value, "__float__"),
    "str": lambda value: isinstance(value, str | bytes),
    "tuple": lambda value: isinstance(value, tuple),
    "list": lambda value: isinstance(value, list),
    "Sequence": lambda value: isinstance(value, Sequence) and not isinstance(value, str),
    "Buffer": _is_buffer,
}
