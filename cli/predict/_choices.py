"""What the arguments of a command choose: the model, and the targets to explain."""

from __future__ import annotations

import os
from pathlib import Path

from bcos_sdk.bundle import DEFAULT_MODEL, builtin_bundle, latest_stored_bundle

__all__ = ["choose_model", "target_of"]

_MODEL_VARIABLE = "BCOS_SDK_MODEL"
_LONGEST_INDEX = 18


def choose_model(model: str | None, *, builtin: str = DEFAULT_MODEL) -> tuple[str | Path, str]:
    """Return the model for `Client`, and the reason for the choice."""
    if model is not None:
        return model, "--model"
    if from_environment := os.environ.get(_MODEL_VARIABLE):
        return from_environment, _MODEL_VARIABLE
    latest = latest_stored_bundle()
    if latest is not None:
        return latest, "the last export"
    return builtin_bundle(builtin), "built in"


def target_of(text: str, labels: tuple[str, ...]) -> int | str:
    """The index or the label that the text of an option names."""
    is_index = text.isdecimal() and len(text) <= _LONGEST_INDEX and text not in labels
    return int(text) if is_index else text
