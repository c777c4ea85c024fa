"""The names of the pictures that a run is about to write. If the run is killed, the next one knows them."""

from __future__ import annotations

import json
from pathlib import Path

from bcos_sdk._files import atomic_write
from bcos_sdk._untrusted import parse_json, read_bounded

__all__ = ["Announcement"]

_NAME = ".bcos-sdk.writing"
_LARGEST_FILE = 16 << 20


class Announcement:
    """One hidden file in the output folder: an image, and the files that are being written for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME

    def write(self, name: str, files: tuple[str, ...]) -> None:
        """Announce the files of the image `name`, as paths relative to the folder."""
        with atomic_write(self._path) as partial:
            partial.write_text(json.dumps({"name": name, "files": files}), "utf-8")

    def read(self) -> tuple[str, tuple[str, ...]]:
        """The image and its files; an empty name and no files if nothing is announced."""
        try:
            document = parse_json(read_bounded(self._path, _LARGEST_FILE))
            return str(document["name"]), tuple(map(str, document["files"]))
        except (OSError, ValueError, TypeError, KeyError):
            return "", ()

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
