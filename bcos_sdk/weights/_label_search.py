"""Find the names of the classes that a training checkpoint holds beside its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bcos_sdk.weights._checkpoint import METADATA
from bcos_sdk.weights._stand_ins import StandIn

__all__ = ["find_labels"]

_PLACES = ("hyper_parameters", "hparams", "config", "args", "meta")
_LONGEST_INDEX = 18
_KEYS = ("labels", "class_names", "classes", "class_to_idx", "idx_to_class", "id2label", "label2id")


def find_labels(checkpoint: Mapping[str, Any], classes: int) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the names of the classes in class order, and where they were found or why they were not used.

    Both are None if the checkpoint has no names. They are used only if there is one different name for each class.
    """
    reason = None
    for place, value in _entries(checkpoint):
        names = _in_order(value)
        if names is None:
            continue
        problem = _problem(names, classes)
        if problem is None:
            return names, place
        reason = reason or f"the names in '{place}' were not used: {problem}"
    return None, reason


def _entries(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value under one of the keys, at the top level and in the usual places, also of the metadata."""
    for root, fields in (("", checkpoint), (f"{METADATA}.", _fields(checkpoint.get(METADATA)))):
        for place in ("", *_PLACES):
            found = _fields(fields.get(place)) if place else fields
            for key in _KEYS:
                if key in found:
                    yield f"{root}{place}.{key}" if place else f"{root}{key}", found[key]


def _fields(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, StandIn):  # for example an argparse.Namespace
        value = value.state
    return value if isinstance(value, Mapping) else {}


def _in_order(value: Any) -> tuple[str, ...] | None:
    """The names in a list, a dict of names by index, or a dict of indices by name; None if it is none of them."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    if not isinstance(value, Mapping) or not value:
        return None
    names_are_values = all(isinstance(name, str) for name in value.values())
    by_index: dict[int, str] = {}
    for key, item in value.items():
        index, name = (key, item) if names_are_values else (item, key)
        number = _index(index)
        if number is None or number >= len(value) or not isinstance(name, str):
            return None
        by_index[number] = name
    return tuple(by_index[number] for number in range(len(value))) if len(by_index) == len(value) else None


def _index(value: Any) -> int | None:
    """The index of a class, also as text; None if it is something else."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _LONGEST_INDEX:
        return int(value)
    return value if type(value) is int and value >= 0 else None


def _problem(names: tuple[str, ...], classes: int) -> str | None:
    if len(names) != classes:
        return f"{len(names)} names for {classes} classes"
    if len(set(names)) != len(names):
        return "a name occurs twice"
    if not all(name.strip() for name in names):
        return "a name is empty"
    return None
