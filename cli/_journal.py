"""Append-only file of JSON lines by name, from which an interrupted run can resume. Damaged lines are skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from pydantic import ValidationError
from typing_extensions import Self

from bcos_sdk._files import append_to, atomic_write
from bcos_sdk._plain_text import plain_json
from bcos_sdk._untrusted import open_to_read, parse_json
from bcos_sdk.cli._terminal import print_message
from bcos_sdk.errors import first_faults

__all__ = ["DamageReport", "Journal"]

_INCOMPLETE = "it is incomplete"
"""The reason why the last line is damaged if the process was killed or the disk was full."""
_MOST_REPORTED = 10
_LONGEST_LINE = 64 << 20


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    def model_dump(self) -> dict[str, Any]: ...
    @classmethod
    def model_validate(cls, obj: Any) -> Self: ...


Line = TypeVar("Line", bound=_Named)


class Journal(Generic[Line]):
    """Lines by name; of several lines with one name the last one counts. Memory holds only names and positions.

    `load` reads the file, `append` adds a line, `compact` removes the lines that do not count. Only `append`, `clear`
    and `compact` change the file.
    """

    def __init__(self, path: Path, kind: type[Line]) -> None:
        self._path = path
        self._kind = kind
        self._file: IO[bytes] | None = None
        self._forget()

    def _forget(self) -> None:
        self._places: dict[str, int] = {}
        self._lines = 0  # in the file, with those that do not count
        self._end = 0  # where the next line begins
        self._line_end_missing = False

    def load(self, report: Callable[[Path, int, str], None]) -> Iterator[Line]:
        """Yield all valid lines in their order. `report(path, line number, reason)` is called for each damaged line."""
        if not self._path.exists():
            return
        with open_to_read(self._path) as file:
            for number, text in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                self._lines += 1
                # The rest of a line that is too long counts as another line.
                place, complete = self._end, text.endswith(b"\n") or len(text) == _LONGEST_LINE
                try:
                    line = self._parse(text)
                except ValueError as error:
                    report(self._path, number, _reason(error) if complete else _INCOMPLETE)
                    self._end += len(text) if complete else 0  # the next line overwrites an incomplete one
                    continue
                self._end += len(text)
                self._line_end_missing = not complete
                self._places[line.name] = place
                yield line

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines that count, in the order of the file."""
        if not self._places:
            return
        with self._path.open("rb") as file:
            for place in sorted(self._places.values()):
                file.seek(place)
                yield self._parse(file.readline())

    def get(self, name: str) -> Line | None:
        """The line of a name; None if there is none."""
        place = self._places.get(name)
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            return self._parse(file.readline())

    def append(self, line: Line) -> None:
        """Add a line. If this fails, the lines before it are unharmed."""
        if self._file is None:
            self._file = append_to(self._path)  # without a buffer, which would be written once more on closing
            self._file.truncate(self._end)
            if self._line_end_missing:
                self._write(b"\n")
                self._line_end_missing = False
        text = _to_bytes(line.model_dump())
        place = self._end
        self._write(text)
        self._places[line.name] = place
        self._lines += 1

    def clear(self) -> None:
        """Remove all lines and the file."""
        self.close()
        self._path.unlink(missing_ok=True)
        self._forget()

    def compact(self) -> None:
        """Remove the lines that do not count, atomically. Afterwards the file has one line per name."""
        self.close()
        if self._lines == len(self._places):
            return
        moved: dict[str, int] = {}
        with atomic_write(self._path) as partial, partial.open("xb") as file, self._path.open("rb") as source:
            for name, place in sorted(self._places.items(), key=lambda item: item[1]):
                moved[name] = file.tell()
                source.seek(place)
                file.write(source.readline().removesuffix(b"\n") + b"\n")
            self._end = file.tell()
        self._places, self._lines, self._line_end_missing = moved, len(moved), False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _parse(self, text: bytes) -> Line:
        """Raise a `ValueError` if this is no valid line."""
        return self._kind.model_validate(parse_json(text))

    def _write(self, text: bytes) -> None:
        assert self._file is not None
        rest = memoryview(text)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._end += len(text)


def _to_bytes(document: dict[str, Any]) -> bytes:
    return plain_json(json.dumps(document, ensure_ascii=False)).encode("utf-8") + b"\n"


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return first_faults(error)
    return "it is not JSON"


@dataclass
class DamageReport:
    """Prints the first damaged lines of journals one by one, then the number of the others; or only counts them."""

    shown: bool
    count: int = 0
    complete_lines: int = 0

    def add(self, path: Path, number: int, reason: str) -> None:
        self.count += 1
        self.complete_lines += reason != _INCOMPLETE
        if self.shown and self.count <= _MOST_REPORTED:
            print_message(f"line {number} of {path} is damaged and skipped: {reason}", label="warning:")

    def end(self) -> None:
        if self.shown and self.count > _MOST_REPORTED:
            print_message(f"{self.count - _MOST_REPORTED:,} more lines are damaged and skipped", label="warning:")
