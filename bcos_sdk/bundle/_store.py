"""Find a bundle: by its path, or by its name in the local store or among the built-in models."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from bcos_sdk._paths import builtin_dir, store_dir
from bcos_sdk.bundle._bundle import Bundle
from bcos_sdk.bundle._open import MANIFEST, has_manifest, open_bundle
from bcos_sdk.errors import BundleError

__all__ = ["BUILTIN_MODEL", "builtin_bundle", "find_bundle", "latest_stored_bundle", "stored_bundles"]

BUILTIN_MODEL = "cifar10_resnet18_w16"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find_bundle(model: str | os.PathLike[str]) -> Bundle:
    """Open the bundle at a path. A name that is not a bundle here is looked up in the store, then in the package."""
    path = Path(model)
    is_name = isinstance(model, str) and _NAME.fullmatch(model) is not None
    if is_name and not has_manifest(path):
        places = [folder / path for folder in (store_dir(), builtin_dir()) if has_manifest(folder / path)]
        if not places:
            raise _unknown(str(model))
        path = places[0]
    return open_bundle(path)


def builtin_bundle() -> Path:
    """The folder of the model that ships with this package."""
    return builtin_dir() / BUILTIN_MODEL


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


def _unknown(name: str) -> BundleError:
    stored = stored_bundles()
    near = get_close_matches(name, stored, n=3, cutoff=0.5)
    known = f" The store has {', '.join(near or stored[:10])}." if stored else ""
    return BundleError(
        f"there is no exported model {name!r}",
        source=name,
        hint=f"Export it with `bcos-sdk export {name}`, or pass the folder of a bundle.{known}",
    )
