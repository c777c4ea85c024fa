"""Files that are complete or not there: written aside, then renamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["written_aside"]


@contextmanager
def written_aside(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """`with written_aside(path) as aside:` write to `aside`; it becomes `path` at the end, or vanishes on any error.

    Whoever holds a lock on the path is `alone`: `aside` has a fixed name then, and what a killed process left goes.
    """
    aside = path.with_name(f".{path.name if alone else uuid4().hex}.partial")
    aside.unlink(missing_ok=True)
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
