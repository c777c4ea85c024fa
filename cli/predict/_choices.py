"""What the arguments of a command choose: the model, and the targets to explain."""

from __future__ import annotations

import os
from pathlib import Path

from bcos_sdk.bundle import (
    BUILTIN_MODEL,
    DEFAULT_MODEL,
    builtin_bundle,
    find_folder,
    latest_stored_bundle,
    read_manifest,
)

__all__ = ["choose_model", "target_of"]

_MODEL_VARIABLE = "BCOS_SDK_MODEL"
_LONGEST_INDEX = 18


def choose_model(model: str | None, *, with_layers: bool = False) -> tuple[str | Path, str]:
    """Return the model for `Client`, and the reason for the choice.

    With `with_layers` a default has graphs of inner layers: the last export is left out if it has none.
    """
    if model is not None:
        return model, "--model"
    if from_environment := os.environ.get(_MODEL_VARIABLE):
        return from_environment, _MODEL_VARIABLE
    latest = latest_stored_bundle()
    if latest is None:
        return builtin_bundle(BUILTIN_MODEL if with_layers else DEFAULT_MODEL), "built in"
    if with_layers and not read_manifest(find_folder(latest)).layer_records:
        return builtin_bundle(BUILTIN_MODEL), f"built in; the last export, {latest}, has no inner layers"
    return latest, "the last export"


def target_of(text: str, labels: tuple[str, ...]) -> int | str:
    """The index or the label that the text of an option names."""
    is_index = text.isdecimal() and len(text) <= _LONGEST_INDEX and text not in labels
    return int(text) if is_index else text
