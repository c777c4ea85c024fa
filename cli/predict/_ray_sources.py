"""The images of a run on a cluster: paths of this machine as absolute paths, and URLs of stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bcos_sdk.cli.predict._image_files import SUFFIXES, find_images
from bcos_sdk.cli.predict._lists import names_in_file, names_on_stdin
from bcos_sdk.cli.predict._plan import path_text
from bcos_sdk.errors import InputError
from bcos_sdk.ray import Folder, is_url, local_path
from bcos_sdk.results import Failure

__all__ = ["Images", "find_images_and_urls"]


@dataclass
class Images:
    """Each image once, in a stable order; folders that cannot be read; how many files were skipped for which reason."""

    paths: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def find_images_and_urls(sources: tuple[str, ...], *, null: bool, out: Path | None) -> Images:
    """Search folders of this machine as without a cluster, and the files below URLs. Lists may have both."""
    found = Images()
    paths: dict[str, None] = {}
    for source, listed in _expanded(sources, null):
        if is_url(source):
            paths.update(dict.fromkeys([source] if listed else _below(source, found)))
            continue
        here = source if listed and not source.startswith("file://") else str(local_path(source))
        searched = find_images([here], null=null, out=out)
        paths.update(dict.fromkeys(path_text(image.path) for image in searched.images))
        found.failures += searched.failures
        found.skipped += searched.skipped
    found.paths = list(paths)
    if not found.paths and not found.failures:
        raise InputError(
            f"found no images in {', '.join(sources)}",
            hint=f"In folders, only files with these suffixes are found: {', '.join(sorted(SUFFIXES))}.",
        )
    return found


def _expanded(sources: tuple[str, ...], null: bool) -> Iterator[tuple[str, bool]]:
    """Sources, with lists replaced by what they list, and whether a list has named it."""
    for source in sources:
        if source == "-":
            yield from ((name, True) for name in names_on_stdin(null=null))
        elif source.startswith("@"):
            yield from ((name, True) for name in names_in_file(Path(source[1:]), null=null))
        else:
            yield source, False


def _below(url: str, found: Images) -> Iterator[str]:
    for place in Folder(url).files_below():
        if place == url or PurePosixPath(place).suffix.lower() in SUFFIXES:
            yield place
        else:
            found.skipped["with other suffixes"] += 1
