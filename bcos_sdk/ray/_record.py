"""The record of a destination: which runs have written its files, and which run may write now."""

from __future__ import annotations

import json
import platform
from datetime import datetime, timezone
from enum import Enum, auto
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from bcos_sdk._untrusted import parse_json
from bcos_sdk.errors import InputError, OutputExistsError, OutputInUseError
from bcos_sdk.ray._attempts import marker_prefix
from bcos_sdk.ray._storage import Folder

__all__ = [
    "RECORD",
    "Record",
    "Start",
    "begin",
    "check_session",
    "check_start",
    "discard",
    "file_names",
    "prefix_of",
    "read_record",
    "replace_earlier",
]

RECORD = "_bcos_sdk_run.json"
"""The name begins with an underscore, so that readers of data sets pass over it."""
_FIRST = "part-"


class Start(Enum):
    """What to do with the files of earlier runs in the destination."""

    NEW = auto()
    """There must be none."""
    RESUME = auto()
    """Continue them."""
    OVERWRITE = auto()
    """Replace them, as soon as an image of this run has a result."""


class Record(BaseModel):
    """The record, frozen. Unknown keys, written by a later version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    session: str
    """The run that may write. Workers of any other run stop before they write a file."""
    valid: tuple[str, ...]
    """The runs whose files count."""
    host: str = ""
    since: str = ""


def read_record(folder: Folder) -> Record | None:
    """The record of a folder; None if there is none. An `InputError` if it cannot be understood."""
    written = folder.read(RECORD)
    if written is None:
        return None
    try:
        return Record.model_validate(parse_json(written))
    except (ValueError, ValidationError):
        raise InputError(
            f"{RECORD} in {folder.place} is not the record of a run",
            source=folder.place,
            hint="Choose another --out, or remove this file and all parts in the folder.",
        ) from None


def check_start(folder: Folder, start: Start) -> None:
    """Raise an error if the folder has what a new run must not touch."""
    record = read_record(folder)
    parts = [name for name in folder.names() if name.endswith(".parquet")]
    if start is Start.NEW and (record is not None or parts):
        what = "the record of an earlier run" if record is not None else f"the file {parts[0]}"
        raise OutputExistsError(
            f"{folder.place} has {what}",
            source=folder.place,
            hint="Use --resume to continue it, --overwrite to replace it, or another --out.",
        )
    if start is not Start.NEW and record is None and parts:
        raise OutputExistsError(
            f"{folder.place} has the file {parts[0]}, but no record of a run with --engine ray",
            source=folder.place,
            hint="Choose another --out.",
        )


def begin(folder: Folder, start: Start) -> Record:
    """Start a run: from now on only its workers write. Files that no run has finished are removed."""
    earlier = read_record(folder)
    valid = () if earlier is None else earlier.valid
    session = uuid4().hex[:12]
    record = Record(
        session=session,
        valid=valid if start is Start.OVERWRITE and valid else (*valid, session),
        host=platform.node(),
        since=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    _write(folder, record)
    if earlier is not None:
        _remove_others(folder, record)
    return record


def replace_earlier(folder: Folder, record: Record) -> Record:
    """With `--overwrite`, when the first image has a result: from now on only the files of this run count."""
    replaced = record.model_copy(update={"valid": (record.session,)})
    _write(folder, replaced)
    _remove_others(folder, replaced)
    return replaced


def discard(folder: Folder, record: Record) -> None:
    """Remove the files of this run if they do not count: with `--overwrite`, when every image has failed."""
    if record.session not in record.valid:
        for name in folder.names():
            if name.startswith(prefix_of(record.session)):
                folder.remove(name)


def check_session(folder: Folder, session: str) -> None:
    """Raise an error if another run has begun to write to the folder."""
    record = read_record(folder)
    if record is None or record.session != session:
        holder = "its record was removed" if record is None else f"one on {record.host}, since {record.since}"
        raise OutputInUseError(
            f"another run writes to {folder.place}: {holder}",
            source=folder.place,
            hint="This run has stopped. The files that it has written count; --resume continues it.",
        )


def prefix_of(session: str) -> str:
    """What the names of the files of a run begin with."""
    return f"{_FIRST}{session}-"


def file_names(folder: Folder, record: Record | None) -> list[str]:
    """The names of the files that count. Without a record, every Parquet file counts."""
    names = [name for name in folder.names() if name.endswith(".parquet")]
    if record is None:
        return names
    prefixes = tuple(map(prefix_of, record.valid))
    return [name for name in names if name.startswith(prefixes)]


def _remove_others(folder: Folder, record: Record) -> None:
    """Remove the files of runs that do not count, and of none other: their names have the form of ours."""
    ours = tuple(map(prefix_of, {*record.valid, record.session}))
    for name in folder.names():
        part = name.startswith(_FIRST) and name.endswith(".parquet") and not name.startswith(ours)
        marker = name.startswith(marker_prefix()) and not name.startswith(marker_prefix(record.session))
        if part or marker:
            folder.remove(name)


def _write(folder: Folder, record: Record) -> None:
    document: dict[str, Any] = record.model_dump(mode="json")
    folder.write(RECORD, json.dumps(document, indent=2).encode("utf-8") + b"\n")
