"""Where a process that this one starts finds packages: as this one does."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["import_path"]


def import_path() -> list[str]:
    """Where this process finds packages, without the current folder: what lies there is data, not code."""
    here = {"", str(Path.cwd())}
    package = str(Path(__file__).resolve().parents[1])
    return [*dict.fromkeys([*(place for place in sys.path if place not in here), package])]
