"""The partial file of a download. It is continued only if this user wrote it; whatever else has its name is removed."""

from __future__ import annotations

import os
import stat
import sys
from io import BufferedWriter
from pathlib import Path

from bcos_sdk._files import open_no_link

__all__ = ["open_partial"]

_APPEND = os.O_WRONLY | os.O_APPEND
_MODE = 0o644  # others may never write to it; the user's umask and the folder decide whether they may read it


def open_partial(path: Path) -> BufferedWriter:
    """Open the file to append to it. The position is its end.

    In a folder that others can write to, a link of that name could lead to another file of this user, and a file of
    another user could be changed by them until the last moment.
    """
    try:
        descriptor = open_no_link(path, _APPEND)
    except FileNotFoundError:
        descriptor = _new(path)
    except OSError:  # a link, a FIFO, or a file of another user
        path.unlink()
        descriptor = _new(path)
    else:
        if not _is_ours(os.fstat(descriptor)):
            os.close(descriptor)
            path.unlink()
            descriptor = _new(path)
    file = os.fdopen(descriptor, "ab")
    file.seek(0, os.SEEK_END)
    return file


def _new(path: Path) -> int:
    return open_no_link(path, _APPEND | os.O_CREAT | os.O_EXCL, _MODE)


def _is_ours(status: os.stat_result) -> bool:
    if sys.platform == "win32":
        return True
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and status.st_nlink == 1 and not writable_by_others
