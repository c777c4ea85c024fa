"""Files that are complete or not there: written aside, then renamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["written_aside"]


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """`with written_aside(path) as aside:` write to `aside`; it becomes `path` at the end, or vanishes on any error."""
    aside = path.with_name(f".{uuid4().hex}.partial")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
