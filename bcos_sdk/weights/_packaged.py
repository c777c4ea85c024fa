"""Weights that ship with this package, checked by their hash like all others."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._files import sha256_of
from bcos_sdk._paths import builtin_dir
from bcos_sdk.errors import HashMismatchError
from bcos_sdk.registry.schema import PackagedWeights

__all__ = ["packaged_weights"]


def packaged_weights(source: PackagedWeights) -> Path:
    """The file, whose contents are those that were released."""
    path = builtin_dir() / source.file
    if not path.is_file() or sha256_of(path) != source.sha256:
        raise HashMismatchError(
            f"{path} is not the file that was released", source=str(path), hint="Install bcos-sdk again."
        )
    return path
