"""SHA-256 of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["sha256_of"]

_CHUNK = 1 << 20


def sha256_of(path: Path) -> str:
    """The hash of a file's contents, read piece by piece."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
