"""Complete an entry of a user's own registry file: take what it does not state from its base, and read its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from bcos_sdk._paths import expanded
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError, shown
from bcos_sdk.registry._label_files import read_labels
from bcos_sdk.registry._variants import merge
from bcos_sdk.registry.schema import LabelSet, ModelSpec, load_labels

__all__ = ["complete_entry"]

Fields = dict[str, Any]


def complete_entry(fields: Fields, folder: Path, bases: Mapping[str, ModelSpec]) -> Fields:
    """Return the fields with `base` merged in and with the files in `folder` that they name.

    Raises ValueError with the path of the faulty key.
    """
    if "classes_open" in fields:
        raise ValueError("classes_open: unknown key; leave out 'classes' to take their number from the weights file")
    complete = _with_base(fields, bases)
    labels, weights = complete.get("labels"), complete.get("weights")
    if isinstance(labels, dict):
        complete["labels"] = _labels_of(labels, folder)
    if isinstance(weights, dict) and isinstance(weights.get("file"), str):
        complete["weights"] = weights | {"file": folder / expanded(weights["file"], origin="weights.file")}
        complete |= _classes_of(fields, complete)
    return complete


def _classes_of(own: Fields, complete: Fields) -> Fields:
    """The number of classes of an entry with a weights file that does not state it: one per label, else open."""
    architecture = complete.get("architecture")
    if not isinstance(architecture, dict) or "classes" in (own.get("architecture") or {}):
        return {}
    if own.get("labels") is None:
        return {"classes_open": True}
    labels = complete["labels"]
    names = load_labels(labels) if labels in get_args(LabelSet) else labels
    is_list = isinstance(names, (list, tuple)) and len(names) > 0
    return {"architecture": architecture | {"classes": len(names)}} if is_list else {}


def _with_base(fields: Fields, bases: Mapping[str, ModelSpec]) -> Fields:
    if "base" not in fields:
        return dict(fields)
    name = fields["base"]
    base = bases.get(name) if isinstance(name, str) else None
    if base is None:
        raise ValueError(f"base: {shown(name)} is not a built-in model; `bcos-sdk models` lists them")
    inherited: Fields = {
        "description": f"{name}, changed",
        "input": _input_of(base, fields.get("input")).model_dump(),
        "architecture": base.architecture.model_dump(),
    }
    merged = merge(inherited, fields)
    classes = merged["architecture"].get("classes") if isinstance(merged["architecture"], dict) else None
    if classes == base.architecture.classes:
        merged.setdefault("labels", base.labels)
    return merged


def _input_of(base: ModelSpec, own: Any) -> InputSpec:
    """The input of the base, scaled to the size that the entry gives. A faulty size is reported with the entry."""
    size = own.get("size") if isinstance(own, dict) else None
    is_size = isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size)
    return base.input.scaled_to((size[0], size[1])) if size is not None and is_size else base.input


def _labels_of(labels: Fields, folder: Path) -> tuple[str, ...]:
    if labels.keys() != {"file"} or not isinstance(labels["file"], str):
        raise ValueError("labels: must be a label set, a list of names, or {file: PATH}")
    try:
        return read_labels(folder / expanded(labels["file"], origin="labels.file"))
    except InputError as error:
        raise ValueError(f"labels.file: {error.message}") from error
