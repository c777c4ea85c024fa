"""The content of an image file as a hash, and whether the file is still the one that was hashed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from bcos_sdk._files import sha256_of
from bcos_sdk.limits import Limits

__all__ = ["Content"]


@dataclass(frozen=True)
class Content:
    """The SHA-256 of a file, and the status that the file had when it was read."""

    sha256: str
    status: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Content | None:
        """Read a regular file; None if that is not possible, or if it is larger than any image may be."""
        try:
            before = path.stat()
            if not stat.S_ISREG(before.st_mode) or before.st_size > Limits().bytes:
                return None
            content = cls(sha256_of(path), _status(before))
        except (OSError, ValueError):
            return None
        return content if content.is_still_in(path) else None

    def is_still_in(self, path: Path) -> bool:
        """Whether the file did not change since. Its hash is then that of the image which the client read meanwhile."""
        try:
            return _status(path.stat()) == self.status
        except (OSError, ValueError):
            return False


def _status(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written or replaced. A program can set the modification time, but not the ctime."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
