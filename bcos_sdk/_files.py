"""Atomic writes and hashes of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["atomic_write", "sha256_of"]

_CHUNK = 1 << 20


@contextmanager
def atomic_write(path: Path, *, locked: bool = False) -> Iterator[Path]:
    """`with atomic_write(path) as partial:` write to `partial`. It is renamed to `path`, or removed on any error.

    Pass `locked=True` if you hold a lock on `path`. The partial file then has a fixed name, so that one left behind
    by a killed process is removed.
    """
    partial = path.with_name(f".{path.name if locked else uuid4().hex}.partial")
    partial.unlink(missing_ok=True)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's contents, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
