"""Which model a command runs: the one named, the one in the environment, the last export, the built-in one."""

from __future__ import annotations

import os
from pathlib import Path

from bcos_sdk.bundle import builtin_bundle, latest_stored_bundle

__all__ = ["choose_model"]

VARIABLE = "BCOS_SDK_MODEL"


def choose_model(named: str | None) -> tuple[str | Path, str]:
    """A model for `Client`, and why it is this one."""
    if named is not None:
        return named, "--model"
    if from_environment := os.environ.get(VARIABLE):
        return from_environment, VARIABLE
    latest = latest_stored_bundle()
    if latest is not None:
        return latest, "the last export"
    return builtin_bundle(), "built in"
