"""Pictures that earlier runs wrote. A search for images must not find them."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from bcos_sdk._untrusted import open_to_read, parse_json
from bcos_sdk.cli.predict._announcement import Announcement
from bcos_sdk.cli.predict._output_names import RESULTS

__all__ = ["OwnFiles", "absolute_text"]

_LONGEST_LINE = 64 << 20


class OwnFiles:
    """Knows the files that are listed by the record of a folder above them, and the files below the output folder."""

    def __init__(self, out: Path | None) -> None:
        self._out = None if out is None else _status(out)
        self._listed: dict[Path, tuple[frozenset[str], ...]] = {}
        self._lists: dict[str, tuple[frozenset[str], ...]] = {}
        """What the records of a folder and of those above it list, by the text of the folder."""

    def is_output_folder(self, folder: Path) -> bool:
        status = None if self._out is None else _status(folder)
        return status is not None and self._out is not None and os.path.samestat(status, self._out)

    def is_below_output_folder(self, path: Path) -> bool:
        """Whether the path is the output folder, or is in it."""
        return self._out is not None and any(map(self.is_output_folder, (path, *path.absolute().parents)))

    def is_listed(self, path: Path) -> bool:
        """Whether the record of a folder above the file lists it as written by a run."""
        absolute = absolute_text(path)
        folder = os.path.dirname(absolute)  # noqa: PTH120 - a tenth of the time of Path.parent
        lists = self._lists.get(folder)
        if lists is None:
            lists = self._lists[folder] = self._lists_of(Path(folder))
        return any(absolute in listed for listed in lists)

    def _lists_of(self, folder: Path) -> tuple[frozenset[str], ...]:
        if folder not in self._listed:
            above = () if folder.parent == folder else self._lists_of(folder.parent)
            own = _files_listed_in(folder)
            self._listed[folder] = (*above, own) if own else above
        return self._listed[folder]


def absolute_text(path: Path) -> str:
    """The text of `path.absolute()`, in a tenth of its time."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118


def _files_listed_in(folder: Path) -> frozenset[str]:
    """The files that the record in this folder lists. Other lines are ignored: the file may not be ours."""
    found: set[str] = set()
    try:
        with open_to_read(folder / RESULTS) as file:
            for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
                found.update(_files_of(folder, line))
    except OSError:  # there is no record, or it may not be read
        pass
    _, announced = Announcement(folder).read()
    return frozenset(found | {str(folder / file) for file in announced})


def _files_of(folder: Path, line: bytes) -> list[str]:
    try:
        record = parse_json(line)
        place = folder / PurePosixPath(record["name"]).parent
        return [str(place / PurePosixPath(file).name) for file in record["files"]]
    except (ValueError, TypeError, KeyError):
        return []


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None
