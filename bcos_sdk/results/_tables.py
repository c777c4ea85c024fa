"""Results as a table: one row per image and class, with the columns of CSV, Parquet and data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bcos_sdk._extras import require
from bcos_sdk.errors import InputError
from bcos_sdk.results._kinds import RESULT_KINDS, Result
from bcos_sdk.results._records import Failure, Prediction

if TYPE_CHECKING:
    import pandas

__all__ = ["COLUMNS", "ColumnKind", "arrow_type", "rows_of", "to_dataframe", "to_rows"]

ColumnKind: TypeAlias = Literal["text", "integer", "number", "truth"]

COLUMNS: dict[str, ColumnKind] = {
    "source": "text",
    "rank": "integer",
    "class": "integer",
    "label": "text",
    "probability": "number",
    "logit": "number",
    "sum": "number",
    "relative_residual": "number",
    "passed": "truth",
    "error": "text",
    "notes": "text",
}
"""The columns of every table, in order. A cell that does not apply is empty."""

_PANDAS_TYPES: dict[ColumnKind, str] = {
    "text": "string",
    "integer": "Int64",
    "number": "float64",
    "truth": "boolean",
}


def to_rows(results: Result | Iterable[Result]) -> list[dict[str, Any]]:
    """Return the rows of all results. Every row has all columns; a cell that does not apply is None.

    A `Prediction` has one row per class, an `Explained` one per explanation, and a `Failure` one row with `error`.
    """
    return [row for result in _listed(results) for row in rows_of(result)]


def to_dataframe(results: Result | Iterable[Result]) -> pandas.DataFrame:
    """Return the rows of all results as a pandas data frame with typed columns. Empty cells are missing values."""
    require("pandas", purpose="A data frame")
    import pandas

    frame = pandas.DataFrame(to_rows(results), columns=list(COLUMNS))
    return frame.astype({name: _PANDAS_TYPES[kind] for name, kind in COLUMNS.items()})


def arrow_type(kind: ColumnKind) -> Any:
    """The type of a column in pyarrow and Parquet."""
    import pyarrow as arrow

    types: dict[ColumnKind, Any] = {
        "text": arrow.string(),
        "integer": arrow.int32(),
        "number": arrow.float64(),
        "truth": arrow.bool_(),
    }
    return types[kind]


def rows_of(result: Result) -> Iterator[dict[str, Any]]:
    """Yield the rows of one result."""
    empty: dict[str, Any] = dict.fromkeys(COLUMNS)
    for row in _filled_rows(result):
        yield {**empty, "source": result.source, **row}


def _filled_rows(result: Result) -> Iterator[dict[str, Any]]:
    if isinstance(result, Failure):
        yield {"error": f"{result.code}: {result.message}"}
        return
    prediction = result if isinstance(result, Prediction) else result.prediction
    notes = {"notes": "; ".join(prediction.notes) or None}
    if isinstance(result, Prediction):
        for rank, score in enumerate(result.classes, 1):
            yield {"rank": rank, "class": score.index, **score.model_dump(exclude={"index"}), **notes}
        return
    ranks = {score.index: rank for rank, score in enumerate(prediction.classes, 1)}
    for explanation in result.explanations:
        target, figures = explanation.target, explanation.completeness
        yield {
            "rank": None if target.index is None else ranks.get(target.index),
            "class": target.index,
            **target.model_dump(exclude={"index"}),
            "sum": figures.sum,
            "relative_residual": figures.relative_residual,
            "passed": figures.passed,
            **notes,
        }


def _listed(results: Any) -> Iterable[Result]:
    kinds = tuple(RESULT_KINDS.values())
    for result in [results] if isinstance(results, kinds) else results:
        if not isinstance(result, kinds):
            raise InputError(
                f"{type(result).__name__} is not a result",
                hint="Pass what predict, explain or a stream of a client returned: Prediction, Explained or Failure.",
            )
        yield result
