"""The output folder of a sheet: sheet.json, sheet.png, sheet.html, and the state of a search that is not finished."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from PIL import Image

from bcos_sdk._files import atomic_write, remove_leftovers
from bcos_sdk.cli._folder_lock import FolderLock
from bcos_sdk.cli.predict import output_error, write_report
from bcos_sdk.concepts import Concepts
from bcos_sdk.errors import OutputExistsError

__all__ = ["SheetFolder"]

_PICTURE, _PAGE, _RECORD, _STATE = "sheet.png", "sheet.html", "sheet.json", ".concepts-state.json"


@dataclass
class SheetFolder:
    """`with SheetFolder(path, …) as folder:` the folder is locked. The record is written last.

    Folders that were made here are removed at an error, unless something was written into them.
    """

    path: Path
    resume: bool
    overwrite: bool

    def __post_init__(self) -> None:
        self._lock = FolderLock(self.path)
        self._made: list[Path] = []

    @property
    def state(self) -> Path:
        return self.path / _STATE

    def check(self) -> None:
        """Raise an error if the folder has a sheet or an unfinished search, and it is not said what to do with it."""
        if self.path.exists() and not self.path.is_dir():
            raise output_error(self.path, NotADirectoryError(20, "Not a directory"))
        found = next((name for name in (_RECORD, _PAGE, _PICTURE) if (self.path / name).exists()), None)
        if found is not None and not self.overwrite:
            raise OutputExistsError(
                f"{self.path} has the file {found}, which this run would replace",
                source=str(self.path),
                hint="Use --overwrite to replace it, or another --out.",
            )
        if self.state.exists() and not (self.resume or self.overwrite):
            raise OutputExistsError(
                f"{self.path} has a search that is not finished",
                source=str(self.path),
                hint="Use --resume to continue it, --overwrite to begin again, or another --out.",
            )

    def __enter__(self) -> SheetFolder:
        try:
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            try:
                self.check()
                remove_leftovers(self.path)
                if not self.resume:
                    self.state.unlink(missing_ok=True)
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise output_error(self.path, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unused = error is not None and self._lock.is_alone
        self._lock.release(remove=unused)
        if unused:
            with suppress(OSError):  # meanwhile another run may have begun
                for folder in self._made:
                    folder.rmdir()

    def write(
        self, sheet: Image.Image, title: str, entries: Iterable[dict[str, Any]], concepts: Concepts
    ) -> list[Path]:
        """Write picture, page and record, each atomically, then remove the state."""
        picture, page, record = (self.path / name for name in (_PICTURE, _PAGE, _RECORD))
        try:
            with atomic_write(picture) as aside:
                sheet.save(aside, "PNG", optimize=True)
            write_report(page, title, entries)
            with atomic_write(record) as aside:
                aside.write_text(concepts.to_json() + "\n", "utf-8")
            self.state.unlink(missing_ok=True)
        except OSError as error:
            raise output_error(self.path, error) from error
        return [picture, page, record]
