"""Photographs to try a model with: those of a folder, or the one that the package contains."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["MOST_SAMPLES", "PICTURE_TYPES", "sample_files"]

PICTURE_TYPES = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp"}
MOST_SAMPLES = 60


def sample_files(folder: Path | str | None) -> list[Path]:
    """The photographs of the folder, at most 60; without a folder, the one that the package contains."""
    if folder is None:
        return [Path(str(files("bcos_sdk") / "exporters" / "verify" / "cat.jpg"))]
    found = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in PICTURE_TYPES and path.is_file())
    return found[:MOST_SAMPLES]
