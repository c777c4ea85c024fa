"""Expand a registry entry with a `matrix` into one entry for each combination of the axes' values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from bcos_sdk.errors import shown

__all__ = ["merge", "variants"]

Fields = dict[str, Any]

_MOST_VARIANTS = 1000
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def variants(pattern: str, entry: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield name and fields of each variant; an entry without a matrix is its only variant.

    A matrix maps each {placeholder} of the name to its values, and each value to the fields that it sets. These are
    merged over the fields of the entry. Raises ValueError if the matrix has another form.
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
            variant = merge(variant, axes[axis][value])
        yield _fill_in(pattern, combination), variant


def _check_matrix(pattern: str, axes: Any) -> None:
    if not (isinstance(axes, dict) and axes):
        raise ValueError("must map each {placeholder} of the name to its values")
    for axis, values in axes.items():
        if not (isinstance(values, dict) and values):
            raise ValueError(f"{shown(axis)} must map at least one value to the fields that it sets")
        for value, fields in values.items():
            if not isinstance(fields, dict):
                raise ValueError(f"{shown(axis)}: the fields of the value {shown(str(value))} must be a mapping")
    placeholders = _PLACEHOLDER.findall(pattern)
    for name in placeholders:
        if name not in axes:
            raise ValueError(f"the name has the placeholder {{{name}}}, but the matrix has no such axis")
    for axis in axes:
        if axis not in placeholders:
            raise ValueError(f"the axis {shown(axis)} is not a {{placeholder}} of the name")
    if math.prod(map(len, axes.values())) > _MOST_VARIANTS:
        raise ValueError(f"its axes multiply to more than {_MOST_VARIANTS:,} models")


def _fill_in(pattern: str, combination: dict[str, Any]) -> str:
    # str.format would read {0} as a position and {a.b} as an attribute, but axes may have such names.
    return _PLACEHOLDER.sub(lambda placeholder: shown(combination[placeholder[1]], quote=False), pattern)


def merge(below: Fields, above: Fields) -> Fields:
    """`below` with the fields of `above` set; mappings inside are merged in the same way."""
    merged = dict(below)
    for key, value in above.items():
        both_mappings = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both_mappings else value
    return merged
