"""The local store: find a bundle by its name, list all, remove some. Built-in models are found too."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from difflib import get_close_matches
from pathlib import Path

from bcos_sdk._paths import builtin_dir, store_dir
from bcos_sdk._private_folders import check_store
from bcos_sdk.bundle._builtin import BUILTIN_SHA256
from bcos_sdk.bundle._bundle import Bundle
from bcos_sdk.bundle._manifest import Manifest
from bcos_sdk.bundle._open import MANIFEST, has_manifest, open_bundle, read_manifest
from bcos_sdk.bundle._trust import Verification
from bcos_sdk.errors import BcosError, BundleError, InputError, OutputError

__all__ = [
    "StoredBundle",
    "check_name",
    "find_bundle",
    "find_folder",
    "is_name",
    "latest_stored_bundle",
    "list_store",
    "remove_stored",
    "stored_bundles",
]

_LATEST = datetime(9999, 1, 1, tzinfo=timezone.utc).timestamp()
"""The last year that Python writes as a date. A file system may have later ones."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class StoredBundle:
    """One entry of the store. Its files were not verified, so that listing is fast."""

    name: str
    path: Path
    written: datetime
    size: int
    """Bytes of all files, engines included."""
    manifest: Manifest | None
    problem: str | None = None
    """Why the manifest cannot be read."""


def check_name(name: str) -> str:
    """Return the name if a bundle can have it in the store, else raise an `InputError`."""
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"{name!r} cannot be the name of an export",
            source=name,
            hint="Use letters, digits, '.', '_' and '-', and begin with a letter or a digit.",
        )
    return name


def is_name(model: str | os.PathLike[str]) -> bool:
    """Whether this is a name to look up, not a path: a text without separators, as `check_name` accepts it."""
    return isinstance(model, str) and _NAME.fullmatch(model) is not None


def find_folder(model: str | os.PathLike[str], *, registry: Iterable[str] | None = None) -> Path:
    """The folder of a bundle. A name is looked up in the store, then in the package, never in the current folder.

    Whoever may write to the current folder could otherwise replace a stored model. Raises an `UntrustedFolderError` if
    other users can change the stored model. If there is no such model, the error has similar names of store, package
    and `registry`, the models that can be exported by name (default: those of `model_registry()`).
    """
    path = Path(model)
    if not is_name(model):
        return path
    if has_manifest(store_dir() / path):
        return check_store(path.name)
    if has_manifest(builtin_dir() / path):
        return builtin_dir() / path
    raise _unknown(str(model), registry)


def find_bundle(
    model: str | os.PathLike[str], *, sha256: str | None = None, verify: Verification | None = None
) -> Bundle:
    """Open the bundle at a path, or the one that a name means (`find_folder`).

    `sha256` and `verify` say whose bundle it must be, as in `open_bundle`.
    """
    return open_bundle(find_folder(model), sha256=sha256, verify=verify)


def stored_bundles() -> list[str]:
    """The names of all models in the store, sorted."""
    try:
        return sorted(path.name for path in store_dir().iterdir() if has_manifest(path))
    except OSError:  # the store does not exist yet, or may not be read
        return []


def latest_stored_bundle() -> str | None:
    """The name of the model that was exported to the store last; None if the store is empty."""
    folder = store_dir()
    return max(stored_bundles(), key=lambda name: (folder / name / MANIFEST).stat().st_mtime_ns, default=None)


def list_store() -> list[StoredBundle]:
    """Every export in the store with its manifest, sorted by name."""
    return [_entry(name) for name in stored_bundles()]


def remove_stored(name: str) -> None:
    """Remove an export from the store. A process that is killed meanwhile leaves no half of a bundle."""
    folder = store_dir() / check_name(name)
    if not has_manifest(folder):
        raise _unknown(name)
    # The next export of that name removes a folder with this name if it is left behind.
    doomed = folder.with_name(f".{name}.partial-{os.getpid()}")
    try:
        if folder.is_symlink():
            folder.unlink()
            return
        folder.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise OutputError(
            f"cannot remove {folder}: {error}", source=str(folder), hint="Check the permissions of the store."
        ) from error


def _entry(name: str) -> StoredBundle:
    path = store_dir() / name
    written = datetime.fromtimestamp(min(max((path / MANIFEST).stat().st_mtime, 0), _LATEST), tz=timezone.utc)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    try:
        return StoredBundle(name, path, written, size, read_manifest(path))
    except BundleError as error:
        return StoredBundle(name, path, written, size, None, error.message)


def _unknown(name: str, registry: Iterable[str] | None = None) -> BundleError:
    stored = stored_bundles()
    if has_manifest(Path(name)):
        return BundleError(
            f"there is no exported model {name!r} in the store",
            source=name,
            hint=f"To use the bundle in the folder {name}, pass ./{name}.{_similar(name, stored)}",
        )
    exportable = _exportable() if registry is None else [*registry]
    if name in exportable:
        advice = f"Export it with `bcos-sdk export {name}`, or pass the folder of a bundle."
    else:
        near = _similar(name, [*stored, *BUILTIN_SHA256, *exportable])
        advice = f"{near} `bcos-sdk models list` lists the exports, `bcos-sdk models` what can be exported.".lstrip()
        if not near and stored:
            advice = f"The store has {', '.join(stored[:10])}. {advice}"
    return BundleError(f"there is no exported model {name!r}", source=name, hint=advice)


def _similar(name: str, known: Iterable[str]) -> str:
    """A question for the names that may have been meant, after a space; empty if none is similar."""
    names = list(dict.fromkeys(known))
    near = get_close_matches(name, names, n=3, cutoff=0.8) or get_close_matches(name, names, n=1)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _exportable() -> list[str]:
    """The models of the registry; none if it cannot be read, which is no reason to hide that a model is missing."""
    from bcos_sdk.registry import model_registry  # only for this error: the registry is not needed to run a bundle

    try:
        return [*model_registry()]
    except BcosError:
        return []
