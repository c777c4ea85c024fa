"""A result as one row of the Parquet files, and back."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bcos_sdk.errors import InputError, first_faults
from bcos_sdk.images import Geometry
from bcos_sdk.ray._maps import Maps, map_from_fields, map_to_fields
from bcos_sdk.ray._schema import COLUMNS_OF_IMAGE
from bcos_sdk.results import (
    ClassScore,
    Completeness,
    Explained,
    Explanation,
    Failure,
    Prediction,
    Result,
    Target,
    Work,
)

__all__ = ["FAILED", "OK", "PICTURES", "StoredRow", "row_of", "stored_row"]

PICTURES = ("overlay", "rgba", "heatmap")
OK, FAILED = "ok", "failed"


@dataclass(frozen=True)
class StoredRow:
    """One row as typed results.

    `result.explanations` have their certificates. With float32 maps they have their contributions as well, and their
    certificates were checked against them. Other maps are rounded, so they are only in `maps`.
    """

    path: str
    """Empty if a row of a data set had none."""
    image_sha256: str | None
    result: Result
    maps: tuple[npt.NDArray[np.float32] | None, ...]
    """[H, W] for each explanation; None if no map was stored."""
    pictures: tuple[dict[str, bytes], ...]
    """For each explanation, the PNG files by kind."""
    device: str | None
    work: Work


def row_of(
    result: Result,
    *,
    image_sha256: str | None,
    device: str,
    work: str,
    maps: Maps = "none",
    pictures: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The row of a result. Equal results give equal rows, bit by bit."""
    row: dict[str, Any] = {column.name: None for column in COLUMNS_OF_IMAGE}
    row |= {"path": result.source, "image_sha256": image_sha256, "device": device, "work": work, "notes": []}
    if isinstance(result, Failure):
        return row | {
            "status": FAILED,
            "error_code": result.code,
            "error_message": result.message,
            "error_hint": result.hint,
            "error_retryable": result.retryable,
        }
    prediction = result.prediction if isinstance(result, Explained) else result
    classes = [_score(one) for one in prediction.classes]
    row |= {"status": OK, "model": prediction.model, "classes": classes, "notes": list(prediction.notes), **classes[0]}
    if isinstance(result, Explained):
        row["explanations"] = [_explanation_fields(one, maps, pictures) for one in result.explanations]
        geometry = result.explanations[0].geometry
        if geometry is not None:
            row["original_width"], row["original_height"] = geometry.original
            row["box"] = list(geometry.box)
    return row


def stored_row(row: dict[str, Any]) -> StoredRow:
    """The typed results in a row: the inverse of `row_of`, up to the rounding of maps."""
    row = row | {"path": row["path"] or ""}
    path = row["path"]
    try:
        explanations = row["explanations"]
        maps = tuple(map_from_fields(one["contributions"]) for one in explanations or ())
        return StoredRow(
            path=path,
            image_sha256=row["image_sha256"],
            result=_result(row, maps),
            maps=maps,
            pictures=tuple(
                {kind: one[kind] for kind in PICTURES if one[kind] is not None} for one in explanations or ()
            ),
            device=row["device"],
            work=Work.model_validate_json(row["work"]),
        )
    except (ValidationError, KeyError, TypeError) as error:
        reason = first_faults(error) if isinstance(error, ValidationError) else repr(error)
        raise InputError(
            f"the row of {path} is not valid: {reason}", source=path, hint="Pass files that bcos-sdk wrote."
        ) from None


def _score(score: ClassScore | Target) -> dict[str, Any]:
    return {"class": score.index, **score.model_dump(exclude={"index"})}


def _explanation_fields(explanation: Explanation, maps: Maps, pictures: tuple[str, ...]) -> dict[str, Any]:
    figures = explanation.completeness
    return {
        **_score(explanation.target),
        "terms": [{"name": name, "value": value} for name, value in explanation.bias.items()],
        "sum": figures.sum,
        "scale": figures.scale,
        "tolerance": figures.tolerance,
        "precision": figures.precision,
        "relative_residual": figures.relative_residual,
        "passed": figures.passed,
        "contributions": map_to_fields(explanation.contributions, maps),
        **{kind: _png(explanation, kind) if kind in pictures else None for kind in PICTURES},
    }


def _png(explanation: Explanation, kind: str) -> bytes:
    contents = BytesIO()
    getattr(explanation, kind)().save(contents, "PNG")
    return contents.getvalue()


def _result(row: dict[str, Any], maps: tuple[npt.NDArray[np.float32] | None, ...]) -> Result:
    source = row["path"]
    if row["status"] == FAILED:
        return Failure(
            source=source,
            code=row["error_code"],
            message=row["error_message"],
            hint=row["error_hint"],
            retryable=row["error_retryable"],
        )
    classes = tuple(ClassScore(index=one["class"], **_named(one)) for one in row["classes"])
    prediction = Prediction(source=source, model=row["model"], classes=classes, notes=tuple(row["notes"] or ()))
    if row["explanations"] is None:
        return prediction
    explanations = tuple(_explanation(row, *pair) for pair in zip(row["explanations"], maps, strict=True))
    return Explained(source=source, prediction=prediction, explanations=explanations)


def _explanation(
    row: dict[str, Any], fields: dict[str, Any], contributions: npt.NDArray[np.float32] | None
) -> Explanation:
    exact = contributions is not None and fields["contributions"]["dtype"] == "float32"
    original = (row["original_width"], row["original_height"])
    return Explanation(
        source=row["path"],
        model=row["model"],
        target=Target(index=fields["class"], **_named(fields)),
        bias={term["name"]: term["value"] for term in fields["terms"]},
        completeness=Completeness(
            logit=fields["logit"], **{name: fields[name] for name in ("sum", "scale", "tolerance", "precision")}
        ),
        geometry=None if row["box"] is None else Geometry(original=original, box=tuple(row["box"])),
        arrays={"contributions": contributions} if exact and contributions is not None else {},
    )


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("label", "logit", "probability")}
