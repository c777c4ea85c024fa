"""How the bundle reaches the workers: by path, from a store, or through the object store. Workers check its hash."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bcos_sdk._private_folders import private_cache
from bcos_sdk.bundle import Bundle, Verification, find_bundle
from bcos_sdk.errors import BundleError, HashMismatchError, InputError
from bcos_sdk.ray._places import is_url, local_path
from bcos_sdk.ray._storage import Folder, read_bytes

__all__ = ["Delivery", "Ship", "contents_of", "open_model"]

Ship = Literal["auto", "path", "store"]
"""How a bundle on this machine reaches the workers: all see its path, or it is copied through the object store."""

_MANIFEST = "manifest.json"
_LARGEST_FILE = 1 << 36


@dataclass(frozen=True)
class Delivery:
    """Where a worker gets the bundle, and the SHA-256 of its manifest, which has the hashes of all files."""

    sha256: str
    path: str | None = None
    url: str | None = None
    contents: Any = field(default=None, repr=False)
    """A reference of Ray to the contents of the files by name."""

    def folder(self) -> Path:
        """The folder of the bundle on this machine. Whoever opens it must pass the hash to the client."""
        if self.path is not None:
            return Path(self.path)
        place = private_cache("bundles") / self.sha256
        if not place.is_dir() or not _is_whole(place, self.sha256):
            if self.url is not None:
                _install(_downloaded(self.url), place)
            else:
                import ray

                _install(ray.get(self.contents), place)
        return place


def open_model(model: str, *, sha256: str | None, verify: Verification | None) -> Bundle:
    """The bundle of a path, a name of the store or a URL, verified on this machine."""
    if not is_url(model):
        named = local_path(model) if model.startswith("file://") else model
        return find_bundle(named, sha256=sha256, verify=verify)
    files = _downloaded(model)
    place = private_cache("bundles") / hashlib.sha256(files[_MANIFEST]).hexdigest()
    if not place.is_dir() or not _is_whole(place, place.name):
        _install(files, place)
    return find_bundle(place, sha256=sha256, verify=verify)


def contents_of(bundle: Bundle) -> dict[str, bytes]:
    """The verified files of a bundle by name, with its manifest. The signature was checked here, so it stays here."""
    files = {name: bytes(contents) for name, contents in bundle.contents.items()}
    manifest = (bundle.path / _MANIFEST).read_bytes()
    if hashlib.sha256(manifest).hexdigest() != bundle.sha256:
        raise BundleError(f"{bundle.path} was changed while it was read", source=str(bundle.path), hint="Try again.")
    return files | {_MANIFEST: manifest}


def _downloaded(url: str) -> dict[str, bytes]:
    """The files of a bundle in a store."""
    files: dict[str, bytes] = {}
    folder = Folder(url)
    for place in folder.files_below():
        files[place[len(folder.place.rstrip("/")) + 1 :]] = read_bytes(place, _LARGEST_FILE)
    if _MANIFEST not in files:
        raise InputError(f"{url} is not a bundle: it has no {_MANIFEST}", source=url, hint="Pass the URL of a bundle.")
    return files


def _is_whole(place: Path, sha256: str) -> bool:
    """Whether an earlier run has installed this bundle, and nothing was changed since."""
    try:
        find_bundle(place, sha256=sha256)
    except (BundleError, HashMismatchError):
        return False
    return True


def _install(files: Mapping[str, bytes], place: Path) -> None:
    """Write the files to a folder. Workers that do this at the same time do not disturb each other."""
    aside = Path(tempfile.mkdtemp(dir=place.parent, prefix=".incoming-"))
    try:
        for name, contents in files.items():
            path = aside / name
            if not path.resolve().is_relative_to(aside.resolve()):
                raise BundleError(f"{name} is not inside the bundle", source=name, hint="Export the model again.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents)
        if place.exists() and not _is_whole(place, place.name):
            shutil.rmtree(place)
        try:
            aside.rename(place)
        except OSError:  # another worker was first
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
