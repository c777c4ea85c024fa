"""Atomic writes and hashes of files."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from bcos_sdk.errors import OutputError

__all__ = ["atomic_write", "open_without_blocking", "output_file", "remove_leftovers", "sha256_of"]

_CHUNK = 1 << 20
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial")


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


def remove_leftovers(folder: Path) -> int:
    """Remove the partial files that a killed process left in a folder, and return their number.

    Call this only if no other process writes to the folder.
    """
    try:
        names = [entry.name for entry in folder.iterdir() if _PARTIAL.fullmatch(entry.name) and entry.is_file()]
    except OSError:  # the folder does not exist, or may not be read
        return 0
    for name in names:
        (folder / name).unlink(missing_ok=True)
    return len(names)


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """`atomic_write` for a file that the user asked for: an `OutputError` if it cannot be written."""
    try:
        with atomic_write(path) as partial:
            yield partial
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}",
            source=str(path),
            hint="Check that the folder exists, is writable and has free space.",
        ) from error


def open_without_blocking(path: Path) -> IO[bytes]:
    """Open a file to read it. Opening a pipe or a device does not wait; `os.fstat` of the file tells what it is."""
    return open(path, "rb", opener=_open_without_blocking)


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's contents, read in chunks."""
    digest = hashlib.sha256()
    with open_without_blocking(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
