"""Engines on disk. A plan is loaded only if its record matches and the hash in the record is that of the plan."""

from __future__ import annotations

import contextlib
import glob
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from bcos_sdk._files import read_plain
from bcos_sdk._paths import cache_dir
from bcos_sdk.backends.tensorrt._record import EngineKey, EngineRecord
from bcos_sdk.backends.tensorrt._seal import is_sealed

__all__ = [
    "NO_ENGINE",
    "Accept",
    "Engine",
    "accept_all",
    "accept_own",
    "cached_engines",
    "find_engine",
    "list_engines",
]

NO_ENGINE = "no engine was built yet"
_LARGEST_RECORD = 1 << 20
Accept: TypeAlias = Callable[[EngineRecord], str | None]
"""Return why an engine with a matching record must not be used; None if it may be."""


@dataclass(frozen=True)
class Engine:
    """A plan whose hash was checked, and its record."""

    plan: bytes
    record: EngineRecord


def accept_all(_record: EngineRecord) -> str | None:
    """Accept every engine with a matching record, whoever has built it."""
    return None


def accept_own(record: EngineRecord) -> str | None:
    """Accept only engines that this user has built."""
    return None if is_sealed(record) else "it was not built by this user on this machine"


def find_engine(folders: Sequence[Path], graph: str, wanted: EngineKey, accept: Accept = accept_own) -> Engine | str:
    """Return the first matching engine of the graph, or else the mismatches of the engine that has the fewest."""
    misses: list[list[str]] = []
    for path in _records(folders, glob.escape(graph)):
        found = _try(path, wanted, accept)
        if isinstance(found, Engine):
            return found
        if found:
            misses.append([f"{path.stem}.plan: {reason}" for reason in found])
    return "; ".join(sorted(misses, key=len)[0]) if misses else NO_ENGINE


def list_engines(folder: Path) -> dict[str, EngineRecord | str]:
    """For each plan in the folder, its record, or the reason why it cannot be used."""
    return {f"{path.stem}.plan": _examine(path) for path in _records([folder], "*")}


def cached_engines() -> Path:
    """The folder of the engines that this user's processes built. It is not created here."""
    return cache_dir() / "engines"


class _UnusableError(Exception):
    """A file is not an engine, or not the engine that its record describes."""


def _try(path: Path, wanted: EngineKey, accept: Accept) -> Engine | list[str]:
    """Return the engine, or the reasons why it cannot be used; no reasons if it belongs to another model."""
    try:
        record = _read_record(path)
        if record.key.is_of_another_model(wanted):
            return []
        reasons = record.key.mismatches(wanted) or [*filter(None, [accept(record)])]
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
        with contextlib.suppress(OSError):  # a folder without read permission
            if not folder.is_symlink():
                yield from sorted(folder.glob(f"{pattern}.*.json"))


def _read_record(path: Path) -> EngineRecord:
    try:
        return EngineRecord.model_validate_json(_read_plain(path, _LARGEST_RECORD))
    except ValidationError:
        raise _UnusableError("its record has another format than this version of bcos-sdk writes") from None


def _read_plan(path: Path, record: EngineRecord) -> bytes:
    plan = _read_plain(path, record.size)
    if hashlib.sha256(plan).hexdigest() != record.plan_sha256:
        raise _UnusableError("its hash differs from the record")
    return plan


def _read_plain(path: Path, largest: int) -> bytes:
    """Read a regular file that is no link. A plan is code, so no link may lead to a file outside the folder."""
    try:
        return read_plain(path, largest)
    except OSError as error:
        raise _UnusableError(f"it cannot be read as a regular file: {error.strerror}") from None
