"""The files of onnxruntime-web that a site contains, as onnxruntime-web.json records them."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from bcos_sdk.errors import MissingExtraError

__all__ = ["library_files", "library_record"]


def library_record() -> dict[str, Any]:
    """Package, version, licence, and the SHA-256 and size of each file by its path in the package of npm."""
    record: dict[str, Any] = json.loads((_folder() / "onnxruntime-web.json").read_text("utf-8"))
    return record


def library_files() -> dict[str, bytes]:
    """The verified files by the name in the site, with their licence and record.

    Modules are called .js there: not every web server knows the type of .mjs.
    """
    record, folder = library_record(), _folder()
    found = {}
    for path, expected in record["files"].items():
        name = path.rpartition("/")[2]
        contents = _contents(folder / "runtime" / name, record)
        if hashlib.sha256(contents).hexdigest() != expected["sha256"]:
            raise _missing(record, f"{name} is not the file of version {record['version']}")
        found[name.replace(".mjs", ".js")] = contents
    for name in ("onnxruntime-web.json", "onnxruntime-web.LICENSE.txt"):
        found[name] = (folder / name).read_bytes()
    return found


def _folder() -> Path:
    return Path(str(files("bcos_sdk.web")))


def _contents(path: Path, record: dict[str, Any]) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _missing(record, f"{path.name} is missing") from None


def _missing(record: dict[str, Any], reason: str) -> MissingExtraError:
    return MissingExtraError(
        f"a site for browsers needs {record['package']} {record['version']}, which this installation does not have: "
        f"{reason}",
        hint="In a clone of bcos-sdk, run `make browser` (it needs npm; Debian: apt install npm). Packages that were "
        "built there contain the files.",
    )
