"""Atomic writes, hashes of files, and opening files without following links."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO
from uuid import uuid4

from bcos_sdk.errors import OutputError

__all__ = [
    "append_to",
    "atomic_write",
    "is_partial_of",
    "open_no_link",
    "open_without_blocking",
    "output_file",
    "read_plain",
    "remove_leftovers",
    "sha256_of",
]

_CHUNK = 1 << 20
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial")
_NO_LINK = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would block
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@contextmanager
def atomic_write(path: Path, *, locked: bool = False) -> Iterator[Path]:
    """`with atomic_write(path) as partial:` write to `partial`. It is renamed to `path`, or removed on any error.

    Nobody can guess the name of the partial file, so nobody can put a link in its place. Pass `locked=True` if you hold
    a lock on `path`: partial files of `path` that killed processes left behind are then removed.
    """
    partial = path.with_name(f".{uuid4().hex}.partial")
    if locked:
        partial = path.with_name(f".{path.name}{partial.name}")
        for left in [one for one in path.parent.iterdir() if is_partial_of(path.name, one.name)]:
            with suppress(OSError):
                left.unlink()
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


def is_partial_of(name: str, file: str) -> bool:
    """Whether `file` is the name of a partial file that `atomic_write(…, locked=True)` makes for the file `name`."""
    return file.startswith(f".{name}") and _PARTIAL.fullmatch(file[len(name) + 1 :]) is not None


def open_no_link(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor. A symbolic link, FIFO or device of that name is an OSError.

    A link is refused, not followed: whoever may write to the folder could direct it to another file of this user.
    """
    if path.is_symlink():  # for the message; on Windows, which has no such flag, for the decision too
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    descriptor = os.open(path, flags | _NO_LINK, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def append_to(path: Path) -> FileIO:
    """Open a file to append to it, without a buffer and without following a link."""
    return os.fdopen(open_no_link(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)


def read_plain(path: Path, largest: int) -> bytes:
    """Read a regular file that is no link, symbolic or hard, and has at most `largest` bytes, or raise OSError."""
    with os.fdopen(open_no_link(path, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_nlink > 1 or status.st_size > largest:
            raise OSError(errno.EINVAL, f"it is a hard link, or has more than {largest:,} bytes", str(path))
        return file.read(largest)


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
