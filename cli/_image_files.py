"""Find the image files that the arguments of a command name: files, folders, patterns, lists, stdin."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from bcos_sdk.errors import InputError

__all__ = ["ImageFile", "find_images"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


@dataclass(frozen=True)
class ImageFile:
    """An image, and the unique name that its output files begin with."""

    path: Path
    name: str


def find_images(sources: Iterable[str]) -> list[ImageFile]:
    """Return every image once, in a stable order, each with a unique name."""
    found: dict[Path, str] = {}
    for path, name in _expand(sources):
        found.setdefault(path, name)
    if not found:
        raise InputError(
            f"found no images in {', '.join(sources)}",
            hint=f"In folders, only files with these suffixes are found: {', '.join(sorted(SUFFIXES))}.",
        )
    return list(_with_unique_names(found))


def _expand(sources: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for source in sources:
        if source == "-":
            yield from _listed(sys.stdin)
        elif source.startswith("@"):
            yield from _list_file(Path(source[1:]))
        elif Path(source).is_dir():
            yield from _in_folder(Path(source))
        elif Path(source).exists() or not glob.has_magic(source):
            yield Path(source), Path(source).name  # a missing file is later reported as the failure of that image
        else:
            matches = glob.glob(source, recursive=True)  # noqa: PTH207 - the pattern may be absolute
            yield from ((Path(match), Path(match).name) for match in sorted(matches))


def _list_file(path: Path) -> Iterator[tuple[Path, str]]:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            yield from _listed(lines)
    except OSError as error:
        raise InputError(
            f"cannot read the list {path}: {error.strerror}",
            source=str(path),
            hint="Pass @FILE with the path of a text file that has one image path per line.",
        ) from error


def _listed(lines: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for line in lines:
        if text := line.strip():
            yield Path(text), Path(text).name


def _in_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    def report(error: OSError) -> None:
        click.echo(f"warning: cannot read the folder {error.filename}: {error.strerror}", err=True)

    for parent, folders, files in os.walk(folder, onerror=report):
        folders.sort()
        for file in sorted(files):
            path = Path(parent) / file
            if path.suffix.lower() in SUFFIXES and not file.startswith("."):
                yield path, path.relative_to(folder).as_posix()


def _with_unique_names(found: dict[Path, str]) -> Iterator[ImageFile]:
    taken: set[str] = set()
    for path, name in found.items():
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{Path(name).with_suffix('')}-{number}{Path(name).suffix}"
        taken.add(unique)
        yield ImageFile(path, unique)
