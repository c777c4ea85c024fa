"""Append-only file of JSON records, one per line, from which an interrupted run can resume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

__all__ = ["Journal"]


class Journal:
    """`with Journal(path, keep=True) as journal:` append records by name. Without `keep` the file is emptied first."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self._path = path
        self._keep = keep
        self._file: IO[str] | None = None

    def __enter__(self) -> Journal:
        if self._keep and self._path.exists():
            self._drop_incomplete_line()
        self._file = self._path.open("a" if self._keep else "w", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, name: str, record: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps({"name": name, **record}, ensure_ascii=False) + "\n")
        self._file.flush()

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the last record of each name, in the order of the file."""
        last_lines = {name: number for number, name in enumerate(self._names())}
        with self._path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                record = json.loads(line)
                if last_lines[record["name"]] == number:
                    yield record

    def _names(self) -> Iterator[str]:
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["name"]

    def _drop_incomplete_line(self) -> None:
        """Remove the last line if it is incomplete, because the process was killed or the disk was full."""
        with self._path.open("rb+") as file:
            complete = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                complete += len(line)
            file.truncate(complete)
