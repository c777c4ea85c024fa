"""Find the image files that the arguments of a command name: files, folders, patterns, lists, stdin."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bcos_sdk.cli._terminal import count_of
from bcos_sdk.cli.predict._lists import names_in_file, names_on_stdin
from bcos_sdk.cli.predict._own_files import OwnFiles, absolute_text
from bcos_sdk.errors import InputError, UnreadableImageError
from bcos_sdk.images import source_name
from bcos_sdk.results import Failure

__all__ = ["Found", "ImageFile", "find_images"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


@dataclass(frozen=True)
class ImageFile:
    """An image, and what it is called: its name, or its path below the folder that was searched."""

    path: Path
    name: str


@dataclass
class Found:
    """The images, the folders and patterns without images, and how many files were skipped for which reason.

    Hidden files and folders, whose names begin with a dot, are not searched.
    """

    images: list[ImageFile] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def skipped_text(self) -> str:
        """For example "skipped 2 files in the output folder"; empty if no file was skipped."""
        parts = [f"{count_of(number, 'file')} {reason}" for reason, number in self.skipped.items()]
        return f"skipped {', '.join(parts)}" if parts else ""


def find_images(sources: Iterable[str], *, null: bool = False, out: Path | None = None) -> Found:
    """Return every image once, in a stable order. With `null`, lists are separated by NUL.

    Searching folders and patterns leaves out what this command wrote: files that the record of an earlier run lists,
    and the output folder `out` if it is in the searched folder. Files that are named one by one are not left out.
    """
    found = Found()
    images: dict[str, ImageFile] = {}
    for image in _Search(found, OwnFiles(out), null).expand(sources):
        images.setdefault(absolute_text(image.path), image)
    found.images = list(images.values())
    if not found.images and not any(failure.code == UnreadableImageError.code for failure in found.failures):
        hint = f"In folders, only files with these suffixes are found: {', '.join(sorted(SUFFIXES))}."
        skipped = found.skipped_text()
        raise InputError(
            f"found no images in {', '.join(sources)}", hint=f"{hint} The search {skipped}." if skipped else hint
        )
    return found


@dataclass(frozen=True)
class _Search:
    found: Found
    own: OwnFiles
    null: bool

    def expand(self, sources: Iterable[str]) -> Iterator[ImageFile]:
        for source in sources:
            if source == "-":
                yield from map(_named, names_on_stdin(null=self.null))
            elif source.startswith("@"):
                yield from map(_named, names_in_file(Path(source[1:]), null=self.null))
            elif os.path.isdir(source):  # noqa: PTH112 - unlike Path.is_dir, False if it may not be read
                yield from self._in_folder(Path(source))
            elif os.path.lexists(source) or not glob.has_magic(source):
                yield _named(source)  # a missing file is later reported as the failure of that image
            else:
                yield from self._matching(source)

    def _matching(self, pattern: str) -> Iterator[ImageFile]:
        in_output = self.own.is_below_output_folder(_fixed_part(pattern))
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if not matches:
            hint = "Check the pattern. It is relative to the current folder."
            self._fail(InputError(f"no file matches {pattern}", source=source_name(pattern, 0), hint=hint))
        for match in matches:
            path = Path(match)
            if os.path.isdir(path):  # noqa: PTH112
                continue
            if not in_output and self.own.is_below_output_folder(path.parent):
                self._skip("in the output folder")
            elif not self._is_listed(path):
                yield _named(match)

    def _in_folder(self, folder: Path) -> Iterator[ImageFile]:
        for parent, folders, files in os.walk(folder, onerror=self._report):
            below = Path(parent)
            outputs = [name for name in folders if self.own.is_output_folder(below / name)]
            for name in outputs:
                self._skip("in the output folder", _count_images(below / name))
            folders[:] = sorted(name for name in set(folders) - set(outputs) if not name.startswith("."))
            images = sorted(filter(_is_image, files))
            self._skip("with other suffixes", sum(not file.startswith(".") for file in files) - len(images))
            for file in images:
                path = below / file
                if not self._is_listed(path):
                    yield ImageFile(path, path.relative_to(folder).as_posix())

    def _is_listed(self, path: Path) -> bool:
        listed = self.own.is_listed(path)
        if listed:
            self._skip("that earlier runs wrote")
        return listed

    def _skip(self, reason: str, count: int = 1) -> None:
        if count:
            self.found.skipped[reason] += count

    def _report(self, error: OSError) -> None:
        source = source_name(error.filename, 0)
        hint = "Check the permissions of the folder; its images were not processed."
        self._fail(UnreadableImageError(f"cannot read the folder {source}: {error.strerror}", source=source, hint=hint))

    def _fail(self, error: InputError) -> None:
        assert error.source is not None
        self.found.failures.append(Failure.of(error, error.source))


def _named(path: str) -> ImageFile:
    return ImageFile(Path(path), Path(path).name)


def _is_image(file: str) -> bool:
    return os.path.splitext(file)[1].lower() in SUFFIXES and not file.startswith(".")  # noqa: PTH122


def _count_images(folder: Path) -> int:
    return sum(_is_image(file) for _, _, files in os.walk(folder) for file in files)


def _fixed_part(pattern: str) -> Path:
    """The folder that a pattern searches: its parts before the first wildcard."""
    path = Path(pattern)
    fixed = [part for part in (path, *path.parents) if not glob.has_magic(str(part))]
    return fixed[0] if fixed else Path()
