"""Engines on disk: a plan is taken if its record fits and its bytes are those that were built."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord

__all__ = ["Accept", "Engine", "anything", "find_engine", "list_engines"]

_LARGEST_RECORD = 1 << 20
Accept: TypeAlias = Callable[[EngineRecord], str | None]
"""Why a record that fits is not to be taken all the same; None if it may be."""


@dataclass(frozen=True)
class Engine:
    """A verified plan, and what is known of it."""

    plan: bytes
    record: EngineRecord


def anything(_record: EngineRecord) -> str | None:
    """Take every engine that fits."""
    return None


def find_engine(folders: Sequence[Path], graph: str, wanted: EngineKey, accept: Accept = anything) -> Engine | str:
    """The first engine of the graph that fits, or why there is none: the nearest miss, in words."""
    misses: list[list[str]] = []
    for path in _records(folders, glob.escape(graph)):
        found = _try(path, wanted, accept)
        if isinstance(found, Engine):
            return found
        if found:
            misses.append([f"{path.stem}.plan: {reason}" for reason in found])
    return "; ".join(sorted(misses, key=len)[0]) if misses else "there is none yet"


def list_engines(folder: Path) -> dict[str, EngineRecord | str]:
    """The record of every plan in the folder, or why it cannot be used."""
    return {f"{path.stem}.plan": _examine(path) for path in _records([folder], "*")}


class _UnusableError(Exception):
    """A file that is no engine, or not the one that its record describes."""


def _try(path: Path, wanted: EngineKey, accept: Accept) -> Engine | list[str]:
    """The engine, or what keeps it from being used; nothing is said of engines of other models."""
    try:
        record = _read_record(path)
        if record.key.is_of_another_model(wanted):
            return []
        reasons = record.key.unlike(wanted) or [*filter(None, [accept(record)])]
        return reasons or Engine(_read_plan(path.with_suffix(".plan"), record), record)
    except _UnusableError as error:
        return [str(error)]


def _examine(path: Path) -> EngineRecord | str:
    try:
        record = _read_record(path)
        _read_plan(path.with_suffix(".plan"), record)
    except _UnusableError as error:
        return str(error)
    return record


def _records(folders: Sequence[Path], pattern: str) -> Iterator[Path]:
    for folder in folders:
        with contextlib.suppress(OSError):  # a folder that may not be looked into
            if not folder.is_symlink():
                yield from sorted(folder.glob(f"{pattern}.*.json"))


def _read_record(path: Path) -> EngineRecord:
    try:
        return EngineRecord.model_validate_json(_read_plain(path, _LARGEST_RECORD))
    except ValidationError:
        raise _UnusableError("its record is not one of this version of bcos-sdk") from None


def _read_plan(path: Path, record: EngineRecord) -> bytes:
    plan = _read_plain(path, record.size)
    if hashlib.sha256(plan).hexdigest() != record.plan_sha256:
        raise _UnusableError("it is not the file that was built: its hash differs")
    return plan


def _read_plain(path: Path, largest: int) -> bytes:
    """A link could lead elsewhere, and engines are never taken from elsewhere: a plan is code."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size > largest:
            raise _UnusableError("it is not a plain file of the size that was built")
        return path.read_bytes()
    except OSError as error:
        raise _UnusableError(f"it cannot be read: {error.strerror}") from None
