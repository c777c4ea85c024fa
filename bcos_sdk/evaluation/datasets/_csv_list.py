"""A CSV file with the columns path and label, and perhaps mask."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from bcos_sdk._untrusted import read_bounded, typed_errors
from bcos_sdk.errors import InputError
from bcos_sdk.evaluation.datasets._dataset import Dataset, LabelMatcher, Sample

__all__ = ["read_csv_list"]

_LARGEST = 1 << 30
_HINT = "Write one line per image: path,label or path,label,mask; a header is optional."


def read_csv_list(file: Path, labels: Sequence[str], masks: Path | None) -> Dataset:
    """The images that the lines name. Paths are relative to the folder of the file, masks to `masks` or that folder."""
    with typed_errors(lambda reason: InputError(f"cannot read {file}: {reason}", source=str(file), hint=_HINT)):
        rows = [row for row in csv.reader(io.StringIO(read_bounded(file, _LARGEST).decode("utf-8-sig"))) if row]
    if rows and [cell.strip().casefold() for cell in rows[0][:2]] == ["path", "label"]:
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if not 2 <= len(row) <= 3:
            raise InputError(
                f"row {number} of {file} has {len(row)} cells, expected 2 or 3", source=str(file), hint=_HINT
            )
    classes = LabelMatcher(labels).find_all(dict.fromkeys(row[1].strip() for row in rows), file)
    folder = file.parent
    samples = [
        Sample(
            row[0],
            classes[row[1].strip()],
            folder / row[0],
            (masks or folder) / row[2] if len(row) == 3 and row[2] else None,
        )
        for row in rows
    ]
    return Dataset("CSV", tuple(samples))
