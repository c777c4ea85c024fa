"""What a run writes to which folder, and how it starts if the folder has the record of an earlier run."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from bcos_sdk.cli._folder_lock import FolderLock
from bcos_sdk.cli.predict._drawings import output_error
from bcos_sdk.cli.predict._output_names import RESULTS
from bcos_sdk.errors import OutputExistsError

__all__ = ["OutputOptions", "Start"]


class Start(Enum):
    """What to do with the record of an earlier run in the folder."""

    NEW = auto()
    """There must be none."""
    RESUME = auto()
    """Continue it."""
    OVERWRITE = auto()
    """Replace it, as soon as this run has its first result."""


@dataclass(frozen=True)
class OutputOptions:
    """The folder, what is written to it besides results.jsonl, and how a run starts if the folder has a record."""

    folder: Path
    pictures: tuple[str, ...] = ()
    report: bool = False
    table: bool = False
    start: Start = Start.NEW

    def check_start(self) -> None:
        """Raise an error if a run cannot start in this folder. The folder is not changed.

        Opening a model can take long, so this is called before it.
        """
        lock = FolderLock(self.folder)
        try:
            self._check_place()
            if lock.was_used:
                lock.acquire()
                lock.release()
            self.refuse_record()
        except OSError as error:
            raise output_error(self.folder, error) from error

    def _check_place(self) -> None:
        """Raise an `OSError` if the folder cannot be made, because something above it is no folder."""
        existing = next(place for place in (self.folder, *self.folder.absolute().parents) if place.exists())
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def refuse_record(self) -> None:
        """Raise an error if the folder has a record that is no file, or for which it is not said what to do with it."""
        path = self.folder / RESULTS
        if path.exists() and not path.is_file():
            raise OutputExistsError(
                f"{path} is not a regular file, so it is not the record of a run",
                source=str(self.folder),
                hint="Remove it, or choose another --out.",
            )
        if self.start is Start.NEW and path.exists() and path.stat().st_size:
            raise OutputExistsError(
                f"{self.folder} has the record of an earlier run, {RESULTS}",
                source=str(self.folder),
                hint="Use --resume to continue it, --overwrite to replace it, or another --out.",
            )

    @property
    def weights_wanted(self) -> bool:
        """Whether the pictures or files need W(x). It is large, so it is fetched only then."""
        return self.report or bool({"rgba", "npz"} & set(self.pictures))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of outputs that belong to one image."""
        return (*sorted(self.pictures), *(["report"] if self.report else []))
