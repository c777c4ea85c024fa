"""Open the files of a bundle once, without following links. What was hashed is what runs.

A large file is mapped into memory, so that opening it needs no copy. A file that is replaced later has no effect. Only
a process that may write to the file itself can still change it.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

__all__ = ["ContentsError", "open_contents", "release_pages"]

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would block
_SMALL = 1 << 20
_SPARSE_FROM = 1 << 30
_BLOCK = 512  # the unit of st_blocks


class ContentsError(Exception):
    """A file is missing, is a link, is not a regular file, or is too large."""


def open_contents(folder: Path, name: str, *, largest: int, may_be_hard_link: bool) -> memoryview:
    """The contents of the file `name` in the folder, or a `ContentsError` with the reason why it is refused."""
    with _descriptor(folder, name) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ContentsError(f"{name} is not a regular file")
        if status.st_nlink > 1 and not may_be_hard_link:
            raise ContentsError(f"{name} is a hard link")
        if status.st_size > largest:
            raise ContentsError(f"{name} has {status.st_size:,} bytes, the limit is {largest:,}")
        if status.st_size > _SPARSE_FROM and getattr(status, "st_blocks", status.st_size) * _BLOCK < status.st_size / 2:
            raise ContentsError(f"{name} is a sparse file: most of its {status.st_size:,} bytes are not stored")
        if status.st_size < _SMALL or sys.platform == "win32":  # Windows cannot rename or remove a mapped file
            return memoryview(_read(file, status.st_size))
        return memoryview(mmap.mmap(file, status.st_size, access=mmap.ACCESS_READ))


def release_pages(contents: memoryview) -> None:
    """Let go of the memory of a mapped file. It stays usable: the system reads it again on the next use."""
    if isinstance(contents.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        contents.obj.madvise(mmap.MADV_DONTNEED)


@contextmanager
def _descriptor(folder: Path, name: str) -> Iterator[int]:
    """An open descriptor of the file. Each folder on the way is opened relative to the one before."""
    *parents, last = PurePosixPath(name).parts
    try:
        if os.open not in os.supports_dir_fd:
            file = _open_by_path(folder, name)
        else:
            place = os.open(folder, _READ)
            try:
                for parent in parents:
                    place, above = os.open(parent, _READ | _NO_LINKS | os.O_DIRECTORY, dir_fd=place), place
                    os.close(above)
                file = os.open(last, _READ | _NO_LINKS, dir_fd=place)
            finally:
                os.close(place)
    except FileNotFoundError:
        raise ContentsError(f"{name} is missing") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ContentsError(f"{name} is a symbolic link") from None
        raise
    try:
        yield file
    finally:
        os.close(file)


def _open_by_path(folder: Path, name: str) -> int:
    path = folder
    for part in PurePosixPath(name).parts:
        path = path / part
        if path.is_symlink():
            raise ContentsError(f"{name} is a symbolic link")
    return os.open(path, _READ)


def _read(file: int, size: int) -> bytes:
    contents = bytearray()
    while part := os.read(file, size + 1 - len(contents)):
        contents += part
    return bytes(contents)
