"""Format results as text, CSV or Parquet. CSV and Parquet have one row per image and class."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from bcos_sdk._extras import require
from bcos_sdk._files import atomic_write
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["COLUMNS", "as_text", "csv_rows", "rows_of", "write_parquet"]

COLUMNS = ("source", "rank", "class", "label", "probability", "logit", "sum", "relative_residual", "passed", "error")


def as_text(result: Prediction | Explained | Failure) -> str:
    """Format one line for the image and one for each explanation."""
    if isinstance(result, Failure):
        return f"{result.source}: error [{result.code}]: {result.message}"
    prediction = result.prediction if isinstance(result, Explained) else result
    shown = prediction.classes[:1] if isinstance(result, Explained) else prediction.classes
    best = ", ".join(f"{score.label} {score.probability:.3f}" for score in shown)
    lines = [f"{result.source}: {best}"]
    for explanation in result.explanations if isinstance(result, Explained) else ():
        figures = explanation.completeness
        pixels = figures.sum - sum(explanation.bias.values())
        terms = " ".join(f"{value:+.3f} {name}" for name, value in explanation.bias.items())
        lines.append(
            f"  {explanation.target.label}: logit {figures.logit:.3f} = {pixels:.3f} pixels {terms}"
            f"  (residual {figures.relative_residual:.0e})"
        )
    return "\n".join(lines)


def rows_of(result: Prediction | Explained | Failure) -> Iterator[dict[str, Any]]:
    """Yield one row per predicted or explained class; one row for a failure."""
    if isinstance(result, Failure):
        yield {"source": result.source, "error": f"{result.code}: {result.message}"}
    elif isinstance(result, Prediction):
        for rank, score in enumerate(result.classes, 1):
            yield {"source": result.source, "rank": rank, "class": score.index, **score.model_dump(exclude={"index"})}
    else:
        ranks = {score.index: rank for rank, score in enumerate(result.prediction.classes, 1)}
        for explanation in result.explanations:
            target, figures = explanation.target, explanation.completeness
            yield {
                "source": result.source,
                "rank": None if target.index is None else ranks.get(target.index),
                "class": target.index,
                **target.model_dump(exclude={"index"}),
                "sum": figures.sum,
                "relative_residual": figures.relative_residual,
                "passed": figures.passed,
            }


def csv_rows(result: Prediction | Explained | Failure | None) -> str:
    """Return the rows of a result as CSV text; for None, the header."""
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True))] if result is None else rows_of(result)
    return "".join(map(_csv_row, rows))


def _csv_row(row: dict[str, Any]) -> str:
    file = io.StringIO()
    # Python quotes a carriage return, which a file name may have, only if it is part of the line end.
    csv.DictWriter(file, COLUMNS, lineterminator="\r\n").writerow(row)
    return file.getvalue().removesuffix("\r\n") + "\n"


def write_parquet(results: Iterable[Prediction | Explained | Failure], target: Path | IO[bytes]) -> None:
    """Write a table with typed columns to a file, atomically, or to a binary stream."""
    require("pyarrow", purpose="Writing Parquet")
    import pyarrow as arrow
    from pyarrow import parquet

    kinds = {"rank": arrow.int32(), "class": arrow.int32(), "passed": arrow.bool_()}
    texts = {"source", "label", "error"}
    schema = arrow.schema(
        [(name, kinds.get(name, arrow.string() if name in texts else arrow.float64())) for name in COLUMNS]
    )
    place = atomic_write(target) if isinstance(target, Path) else nullcontext(target)
    with place as file, parquet.ParquetWriter(file, schema) as writer:
        for result in results:
            rows = [{name: row.get(name) for name in COLUMNS} for row in rows_of(result)]
            writer.write_table(arrow.Table.from_pylist(rows, schema))
