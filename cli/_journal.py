"""Append-only records, one line of JSON each: what stands in a file is whole, and a killed run can go on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

__all__ = ["Journal"]


class Journal:
    """`with Journal(path, keep=True) as journal:` appends records by name; without `keep` it begins anew."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self._path = path
        self._keep = keep
        self._file: IO[str] | None = None

    def __enter__(self) -> Journal:
        if self._keep and self._path.exists():
            self._drop_half_a_line()
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
        """Every record, the last one of each name, in the order in which the names first came."""
        places = {name: place for place, name in enumerate(self._names())}
        with self._path.open(encoding="utf-8") as lines:
            for place, line in enumerate(lines):
                record = json.loads(line)
                if places[record["name"]] == place:
                    yield record

    def _names(self) -> Iterator[str]:
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["name"]

    def _drop_half_a_line(self) -> None:
        """What a killed process was writing, or a full disk cut off."""
        with self._path.open("rb+") as file:
            whole = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
            file.truncate(whole)
