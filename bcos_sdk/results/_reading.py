"""Read results back from files: results.jsonl or the output of `--format jsonl`, and an explanation from .npz."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from bcos_sdk._logs import log
from bcos_sdk._untrusted import open_to_read, parse_json, read_arrays, typed_errors
from bcos_sdk.errors import InputError
from bcos_sdk.results._explanation import Explanation
from bcos_sdk.results._kinds import Result, result_of

__all__ = ["OnDamage", "read_explanation", "read_results"]

OnDamage = Literal["raise", "skip"]

_KIND_OF_FIELD = {"classes": "Prediction", "explanations": "Explained", "code": "Failure"}
"""The field by which a result is told from the others."""
_METADATA = "metadata"
_LARGEST_ARRAY = 1 << 30


def read_results(path: str | os.PathLike[str], *, on_error: OnDamage = "raise") -> Iterator[Result]:
    """Yield the results of results.jsonl, or of the output of `bcos-sdk predict --format jsonl`, one line at a time.

    results.jsonl may have several lines for one image, for example after `--resume`. The last one counts. A line that
    is not a result raises an `InputError` with its number, or is skipped and logged with `on_error="skip"`.
    Arrays are in neither of these files: certificates are what the file states, and `Explanation.verified` is False.
    """
    if on_error not in get_args(OnDamage):
        raise InputError(
            f'on_error is {on_error!r}, expected "raise" or "skip"', source="on_error", hint="Use one of these."
        )
    file = Path(path)
    if not file.is_file():
        raise InputError(
            f"there is no file {file}", source=str(file), hint="Pass the path of results.jsonl in the output folder."
        )
    return _results(file, on_error)


def read_explanation(path: str | os.PathLike[str]) -> Explanation:
    """Return the explanation that `Explanation.save` or `--save npz` wrote to an .npz file.

    The certificate is checked against the arrays: an `IncompleteExplanationError` if they do not add up to the logit,
    or if it is not their certificate.
    """
    source = str(path)
    with typed_errors(lambda reason: _not_an_explanation(source, reason)):
        try:
            opened = open_to_read(Path(path))
        except FileNotFoundError:
            hint = "Pass the path of an .npz file."
            raise InputError(f"there is no file {source}", source=source, hint=hint) from None
        with opened as file:
            arrays = read_arrays(file, largest=_LARGEST_ARRAY)
        document = parse_json(str(arrays.pop(_METADATA)))
        explanation = Explanation.model_validate({**document, "arrays": arrays})
    explanation.require_complete()
    return explanation


def _results(path: Path, on_error: OnDamage) -> Iterator[Result]:
    last_lines = _last_lines(path)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                document = _document(line)
                result = _result(document)
            except ValueError as error:
                if on_error == "raise":
                    raise InputError(
                        f"line {number} of {path} is not a result: {error}",
                        source=str(path),
                        hint='A killed run may leave an incomplete last line. on_error="skip" leaves such lines out.',
                    ) from None
                log.warning("line %d of %s is skipped: %s", number, path, error)
                continue
            if last_lines.get(_name(document), number) == number:
                yield result


def _last_lines(path: Path) -> dict[str | None, int]:
    """The number of the last line with a result, for each name of an image.

    A line is validated here only if its name occurred before: a line that is not a result does not replace one.
    """
    found: dict[str | None, int] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            with contextlib.suppress(ValueError):  # it is reported when its turn comes
                document = _document(line)
                name = _name(document)
                if name in found:
                    _result(document)
                if name is not None:
                    found[name] = number
    return found


def _document(line: bytes) -> dict[str, Any]:
    try:
        document = parse_json(line)
    except json.JSONDecodeError:
        raise ValueError("it is no JSON" if line.endswith(b"\n") else "it is incomplete") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _name(document: dict[str, Any]) -> str | None:
    """The name of the image in a record of a run; None in a plain result."""
    name = document.get("name") if "kind" in document else None
    return name if isinstance(name, str) else None


def _result(document: dict[str, Any]) -> Result:
    """The result in a record of a run, or the document itself as a result; a `ValueError` if it is none."""
    if "kind" in document:
        return result_of(document["kind"], document.get("result"))
    return result_of(next((kind for field, kind in _KIND_OF_FIELD.items() if field in document), None), document)


def _not_an_explanation(source: str, reason: str) -> InputError:
    return InputError(
        f"{source} is not a saved explanation: {reason}",
        source=source,
        hint="Pass an .npz file that Explanation.save or `bcos-sdk predict --save npz` wrote.",
    )
