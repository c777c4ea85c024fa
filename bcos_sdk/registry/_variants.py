"""A registry entry with a `matrix` → one entry for every combination of its axes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

__all__ = ["variants"]

Fields = dict[str, Any]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def variants(pattern: str, entry: Fields) -> Iterator[tuple[str, Fields]]:
    """The entry under its name; with a matrix each combination of its axes, merged over the entry.

    A matrix maps each {placeholder} of the name to its values, and each value to the fields it sets.
    One that does not is a ValueError.
    """
    fields = {key: value for key, value in entry.items() if key != "matrix"}
    if "matrix" not in entry:
        yield pattern, fields
        return
    axes = entry["matrix"]
    _check_matrix(pattern, axes)
    for values in product(*axes.values()):
        combination = dict(zip(axes, values, strict=True))
        variant = fields
        for axis, value in combination.items():
            variant = _merge(variant, axes[axis][value])
        yield _fill_in(pattern, combination), variant


def _check_matrix(pattern: str, axes: Any) -> None:
    if not (isinstance(axes, dict) and axes):
        raise ValueError("must map each {placeholder} of the name to its values")
    for axis, values in axes.items():
        if not (isinstance(values, dict) and values):
            raise ValueError(f"'{axis}' must map each of its values, at least one, to the fields it sets")
        for value, fields in values.items():
            if not isinstance(fields, dict):
                raise ValueError(f"'{axis}': the value '{value}' must be a mapping of fields")
    placeholders = _PLACEHOLDER.findall(pattern)
    for name in placeholders:
        if name not in axes:
            raise ValueError(f"the name has the placeholder {{{name}}}, the matrix has not")
    for axis in axes:
        if axis not in placeholders:
            raise ValueError(f"'{axis}' is no {{placeholder}} of the name")


def _fill_in(pattern: str, combination: dict[str, Any]) -> str:
    # Not str.format, which reads {0} as a position and {a.b} as an attribute, whatever the axes are called.
    return _PLACEHOLDER.sub(lambda placeholder: str(combination[placeholder[1]]), pattern)


def _merge(below: Fields, above: Fields) -> Fields:
    merged = dict(below)
    for key, value in above.items():
        both_mappings = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both_mappings else value
    return merged
