"""Format results as text, CSV or Parquet. CSV and Parquet have one row per image and class."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import IO, Any

from bcos_sdk._extras import require
from bcos_sdk._files import output_file
from bcos_sdk._plain_text import plain_cell
from bcos_sdk.results import COLUMNS, ClassScore, Explained, Failure, Result, arrow_type, rows_of

__all__ = ["as_lines", "csv_rows", "write_parquet"]

_ROWS_PER_GROUP = 10_000


def as_lines(result: Result) -> list[str]:
    """One line for the image and one for each explanation."""
    if isinstance(result, Failure):
        return [f"{result.source}: error [{result.code}]: {result.message}"]
    prediction = result.prediction if isinstance(result, Explained) else result
    shown = prediction.classes[:1] if isinstance(result, Explained) else prediction.classes
    best = ", ".join(f"{score.label} {_amount(score)}" for score in shown)
    lines = [f"{result.source}: {best}"]
    for explanation in result.explanations if isinstance(result, Explained) else ():
        figures = explanation.completeness
        pixels = figures.sum - sum(explanation.bias.values())
        terms = " ".join(f"{value:+.3f} {name}" for name, value in explanation.bias.items())
        lines.append(
            f"  {explanation.target.label}: logit {figures.logit:.3f} = {pixels:.3f} pixels {terms}"
            f"  (residual {figures.relative_residual:.0e})"
        )
    return lines


def _amount(score: ClassScore) -> str:
    return f"{score.logit:.3f}" if score.probability is None else f"{score.probability:.3f}"


def csv_rows(result: Result | None) -> str:
    """Return the rows of a result as CSV text; for None, the header.

    Cells of text are for reading: control characters are escaped, and what a spreadsheet would run as a formula begins
    with an apostrophe. Numbers stay numbers. JSON and Parquet have the exact text.
    """
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True))] if result is None else rows_of(result)
    return "".join(map(_csv_row, rows))


def _csv_row(row: dict[str, Any]) -> str:
    file = io.StringIO()
    cells = {name: plain_cell(value) if isinstance(value, str) else value for name, value in row.items()}
    csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(cells)
    return file.getvalue()


def write_parquet(results: Iterable[Result], target: Path | IO[bytes]) -> None:
    """Write a table with typed columns, in row groups of thousands of rows: atomically to a path, or to a stream.

    The stream stays open, and need not be seekable.
    """
    require("pyarrow", purpose="Writing Parquet")
    if isinstance(target, Path):
        with output_file(target) as partial, partial.open("xb") as file:
            _write_groups(results, file)
    else:
        _write_groups(results, target)


def _write_groups(results: Iterable[Result], file: IO[bytes]) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    schema = arrow.schema([(name, arrow_type(kind)) for name, kind in COLUMNS.items()])
    rows = (row for result in results for row in rows_of(result))
    with parquet.ParquetWriter(_Sink(file), schema) as writer:
        while group := list(islice(rows, _ROWS_PER_GROUP)):
            writer.write_table(arrow.Table.from_pylist(group, schema))
    file.flush()


class _Sink(io.RawIOBase):
    """A stream that knows how many bytes were written to it. Closing it leaves the file open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written
