"""Read a labels file: line i names class i. Problems are reported with their line numbers."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._untrusted import read_bounded, typed_errors
from bcos_sdk.errors import InputError, shown

__all__ = ["read_labels"]

_LARGEST_FILE = 16 << 20
_HINT = "Write one label per line in class order, in UTF-8. Each class needs a name of its own."


def read_labels(path: Path | str) -> tuple[str, ...]:
    """Return the labels of a UTF-8 file with one label per line.

    A byte order mark, spaces around a label and empty lines at the end are left out. An empty line before a label and a
    label that is used twice are errors.
    """
    with typed_errors(
        lambda reason: InputError(f"cannot read the labels in {path}: {reason}", source=str(path), hint=_HINT)
    ):
        text = (
            read_bounded(Path(path), _LARGEST_FILE, pipes=True)
            .decode("utf-8-sig")
            .replace("\r\n", "\n")
            .replace("\r", "\n")
        )
    # Not splitlines(): it also splits at characters that may be part of a label, such as U+2028.
    labels = [line.strip() for line in text.rstrip().split("\n")]
    first: dict[str, int] = {}
    for number, label in enumerate(labels, start=1):
        if not label:
            reason = "contains no labels" if len(labels) == 1 else f"has no label in line {number}"
            raise InputError(f"{path} {reason}", source=str(path), hint=_HINT)
        if label in first:
            raise InputError(
                f"{path} has the label {shown(label)} twice, in line {first[label]} and in line {number}",
                source=str(path),
                hint=_HINT,
            )
        first[label] = number
    return tuple(labels)
