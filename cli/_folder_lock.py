"""The lock of an output folder: one run at a time writes to it. A killed process leaves no lock behind."""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bcos_sdk._files import atomic_write
from bcos_sdk.errors import OutputError, OutputInUseError

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["FolderLock"]


class FolderLock:
    """Locks a folder that exists. The operating system holds the lock, and frees it when the process ends.

    A file beside the lock says who holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / ".bcos-sdk.lock"
        self._holder = folder / ".bcos-sdk.lock.json"
        self._lock: BaseFileLock | None = None

    @property
    def was_used(self) -> bool:
        """Whether a run has locked this folder before, or has locked it now."""
        return self._path.exists()

    @property
    def is_alone(self) -> bool:
        """Whether the folder has no files but those of the lock."""
        return {*self._folder.iterdir()} <= {self._path, self._holder}

    def acquire(self) -> None:
        """Raise an `OutputInUseError` that says who holds the lock, if another run does."""
        from filelock import FileLock, Timeout

        lock = FileLock(self._path)
        try:
            lock.acquire(timeout=0)
            self._lock = lock
            self._write_holder()
        except Timeout:
            raise OutputInUseError(
                f"another run writes to {self._folder}: {self._holder_text()}",
                source=str(self._folder),
                hint="Wait until it has ended, or choose another --out.",
            ) from None
        except NotImplementedError as error:  # the file system has no locks
            raise OutputError(
                f"cannot lock {self._folder}: {error}", source=str(self._folder), hint="Choose another --out."
            ) from error

    def release(self, *, remove: bool = False) -> None:
        """Free the folder. With `remove` the file of the lock is removed too, where the system allows it."""
        if self._lock is not None:
            with suppress(OSError):
                self._holder.unlink(missing_ok=True)
                if remove:
                    self._path.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def _write_holder(self) -> None:
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with atomic_write(self._holder) as partial:
            partial.write_text(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": now}), "utf-8")

    def _holder_text(self) -> str:
        try:
            holder = json.loads(self._holder.read_text("utf-8"))
            return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "it has just begun"
