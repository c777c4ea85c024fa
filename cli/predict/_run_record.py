"""One line of results.jsonl: the result of an image, its files, and everything that decided the result."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import Self

from bcos_sdk.results import Result, Work, record_key, result_of

__all__ = ["ReportLine", "Result", "RunRecord", "file_inside"]


class _Line(BaseModel):
    """A frozen line of a journal. Unknown keys, written by a later version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """What the output files of the image begin with. It is unique in the folder."""


class RunRecord(_Line):
    """The record of one image. It is written after the files of the image, so that these are complete."""

    path: str = ""
    """The absolute path of the image, written as the `source` of a result."""
    image_sha256: str | None = None
    """The SHA-256 of the file. None if the record does not count as finished: the file could not be read or changed
    while it was processed, or the output files were about to be replaced."""
    work: Work | None = None
    """None in records of older versions."""
    files: tuple[str, ...] = ()
    """Paths relative to the output folder."""
    kind: Literal["Prediction", "Explained", "Failure"]
    result: dict[str, Any]

    @classmethod
    def of(cls, result: Result, **fields: Any) -> Self:
        """The record of a result, which is valid. Its arrays are left out."""
        document = json.loads(result.to_json(arrays="omit"))
        return cls.model_construct(kind=type(result).__name__, result=document, **fields)

    @cached_property
    def outcome(self) -> Result:
        return result_of(self.kind, self.result)

    @property
    def key(self) -> str:
        """The hash of everything that decided the result."""
        return record_key(self.image_sha256, self.work)

    @model_validator(mode="after")
    def _has_a_valid_result(self) -> Self:
        _ = self.outcome  # a ValueError if it is not valid
        return self


class ReportLine(_Line):
    """One line of .report.jsonl: what the report page shows of an image, and the key of its record."""

    key: str
    entry: dict[str, Any]


def file_inside(folder: Path, name: str) -> Path | None:
    """The path of a file that a record lists; None if the name leads out of the folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        return None
    found = folder / path
    try:
        inside = found.parent.resolve().is_relative_to(folder.resolve())  # a part of the path may be a symbolic link
    except (OSError, RuntimeError):
        return None
    return found if inside else None
