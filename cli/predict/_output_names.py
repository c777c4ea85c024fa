"""Names of output files: unique, valid UTF-8, and short enough for every file system, for any name of an image."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from pathlib import PurePosixPath
from urllib.parse import quote_from_bytes

from bcos_sdk.cli.predict._drawings import PICTURES

__all__ = ["REPORT", "REPORT_ENTRIES", "RESULTS", "TABLE", "OutputNames", "is_output_name"]

RESULTS, REPORT, REPORT_ENTRIES, TABLE = "results.jsonl", "report.html", ".report.jsonl", "results.parquet"
"""The files of a run that do not belong to one image."""

_LONGEST = 255 - len(".1000000.heatmap.png")
"""File systems allow 255 bytes per name. What follows the name of the image needs some of them."""
_LONGEST_PATH = 2000
"""Systems allow about 4,000 bytes per path. The output folder needs some of them."""
_ENDINGS = tuple(f".{kind}" if kind == "npz" else f".{kind}.png" for kind in PICTURES)
_NUMBERED = re.compile(r"\.\d+$")


class OutputNames:
    """Gives every image the name that its output files begin with. No name is given twice.

    Names that differ only in case or in their Unicode form are the same file on some systems, so they count as equal.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        """Do not give this name to an image."""
        self._taken.add(_folded(name))

    def give(self, image: str) -> str:
        """The name for an image that is called `image`: this, or the nearest name that is valid and not taken."""
        wanted = _valid(image)
        name, number = wanted, self._next.get(wanted, 2)
        while _folded(name) in self._taken:
            path = PurePosixPath(wanted)
            name = _fitting_path(str(path.with_name(f"{path.stem}-{number}{path.suffix}")))
            number += 1
        self._next[wanted] = number
        self.reserve(name)
        return name


def is_output_name(file: str) -> bool:
    """Whether a file is called like one that `--save` writes."""
    return file.endswith(_ENDINGS)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _valid(image: str) -> str:
    """The relative path `image` in valid UTF-8, with every part short enough, and none like an output file."""
    parts = [_valid_part(part) for part in image.split("/") if part] or [_valid_part("")]
    return _fitting_path("/".join(parts))


def _valid_part(part: str) -> str:
    try:
        part.encode("utf-8")
    except UnicodeEncodeError:
        part = _percent_encoded(part)
    mistakable = (
        part in ("", ".", "..", RESULTS, REPORT, REPORT_ENTRIES, TABLE)  # the names of folders and of other outputs
        or is_output_name(part)  # a folder of this name could be where the picture of another image goes
        or _NUMBERED.search(part)  # the first picture of a.png begins with a.png.1
    )
    return _hashed(part) if mistakable else _fitting(part)


def _percent_encoded(part: str) -> str:
    """The name with those bytes that are no UTF-8 as %FF."""
    return "".join(
        quote_from_bytes(os.fsencode(char), safe="") if 0xD800 <= ord(char) <= 0xDFFF else char for char in part
    )


def _fitting_path(path: str) -> str:
    *folders, name = path.split("/")
    name = _fitting(name)
    if len("/".join([*folders, name]).encode()) > _LONGEST_PATH:
        return _hashed(name, path)
    return "/".join([*folders, name])


def _fitting(part: str) -> str:
    return _hashed(part) if len(part.encode()) > _LONGEST else part


def _hashed(part: str, whole: str | None = None) -> str:
    """The beginning of a name, the hash of the whole name, and its suffix."""
    digest = hashlib.sha256((whole or part).encode()).hexdigest()[:16]
    suffix = PurePosixPath(part).suffix
    suffix = suffix if len(suffix.encode()) <= 8 and not _NUMBERED.search(suffix) else ""
    ending = f"~{digest}{suffix}"
    begin = part.removesuffix(suffix).encode()[: _LONGEST - len(ending.encode())].decode("utf-8", "ignore")
    return begin.strip(".") + ending if begin.strip(".") else f"image{ending}"
