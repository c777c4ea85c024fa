"""The columns of the Parquet files: one row per image. docs/ray.md has the same table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from bcos_sdk.results import COLUMNS, ColumnKind, arrow_type

__all__ = ["COLUMNS_OF_IMAGE", "Column", "arrow_schema"]


@dataclass(frozen=True)
class Column:
    """A column or a field of a column. `fields` make it a struct, `many` makes it a list."""

    name: str
    kind: ColumnKind | None
    meaning: str
    fields: tuple[Column, ...] = ()
    many: bool = False

    @property
    def arrow(self) -> Any:
        """The type of the column in pyarrow."""
        import pyarrow as arrow

        if self.fields:
            one = arrow.struct([arrow.field(field.name, field.arrow) for field in self.fields])
        else:
            one = arrow.binary() if self.kind is None else arrow_type(self.kind)
        return arrow.list_(one) if self.many else one


def _as_in_tables(name: str, meaning: str) -> Column:
    """A column that is called and typed as in the tables of one machine."""
    return Column(name, COLUMNS[name], meaning)


def _pictures() -> tuple[Column, ...]:
    return tuple(
        Column(name, None, f"PNG of `{name}()`, with `--save {name}`") for name in ("overlay", "rgba", "heatmap")
    )


_SCORE = (
    _as_in_tables("class", "index of the class"),
    _as_in_tables("label", "its label"),
    _as_in_tables("probability", "its probability; null if logits are no scores of classes"),
    _as_in_tables("logit", "its logit"),
)
_TERM = (Column("name", "text", "name of the term"), Column("value", "number", "its value, a term of b(x)"))
_MAP = (
    Column("dtype", "text", "`float16`, `int8` or `float32`, little-endian"),
    Column("height", "integer", "rows of the map"),
    Column("width", "integer", "columns of the map"),
    Column("scale", "number", "contribution = scale × stored number; a power of two for float16, 1 for float32"),
    Column("data", None, "height × width numbers, row by row"),
)
_EXPLANATION = (
    _as_in_tables("class", "the class; null for the mean and for contrasts"),
    _as_in_tables("label", "what is explained"),
    _as_in_tables("probability", "as above; null for the mean and for contrasts"),
    _as_in_tables("logit", "the logit of the target"),
    Column("terms", None, "the terms of b(x)", _TERM, many=True),
    _as_in_tables("sum", "Σ contributions + Σ terms, in float64"),
    Column("scale", "number", "Σ\\|contribution\\| + Σ\\|term\\|"),
    Column("tolerance", "number", "largest \\|logit − sum\\| ÷ scale of a complete explanation"),
    Column("precision", "text", "`fp32`, `tf32` or `fp16`"),
    _as_in_tables("relative_residual", "\\|logit − sum\\| ÷ scale"),
    _as_in_tables("passed", "whether the explanation is complete"),
    Column("contributions", None, "the map; null with `--maps none`", _MAP),
    *_pictures(),
)

COLUMNS_OF_IMAGE: tuple[Column, ...] = (
    Column(
        "path",
        "text",
        "absolute path or URL of the image; no path is in two rows. With `explain_dataset` as the data set names it: "
        "Ray writes `bucket/images/a.jpg` without `s3://`; null if it has none",
    ),
    Column("image_sha256", "text", "SHA-256 of the file; null if it could not be read"),
    Column("status", "text", "`ok` or `failed`"),
    Column("error_code", "text", "the code of the error, see [failures](client.md#failures)"),
    Column("error_message", "text", "what failed"),
    Column("error_hint", "text", "what to do"),
    Column("error_retryable", "truth", "whether the same call may succeed later"),
    Column("model", "text", "name of the model"),
    _as_in_tables("class", "the most likely class"),
    _as_in_tables("label", "its label"),
    _as_in_tables("probability", "its probability"),
    _as_in_tables("logit", "its logit"),
    Column("classes", None, "the most likely classes, most likely first", _SCORE, many=True),
    Column("explanations", None, "one per target; null without `--explain`", _EXPLANATION, many=True),
    Column("original_width", "integer", "width of the image in pixels, upright"),
    Column("original_height", "integer", "its height"),
    Column("box", "number", "left, top, right, bottom: the part that the network received", many=True),
    Column("notes", "text", "how the file was interpreted where it leaves a choice", many=True),
    Column("device", "text", "the device that computed the row"),
    Column("work", "text", "JSON of what decided the row besides the image; `--resume` compares it"),
)
"""The columns, in order."""


@cache
def arrow_schema() -> Any:
    """The schema of the files in pyarrow."""
    import pyarrow as arrow

    return arrow.schema([arrow.field(column.name, column.arrow) for column in COLUMNS_OF_IMAGE])
