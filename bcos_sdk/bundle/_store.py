"""The local store: exported models that are found by their name."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from bcos_sdk._paths import store_dir
from bcos_sdk.bundle._bundle import MANIFEST, Bundle, open_bundle
from bcos_sdk.errors import BundleError

__all__ = ["find_bundle", "latest_stored_bundle", "stored_bundles"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find_bundle(model: str | os.PathLike[str]) -> Bundle:
    """The bundle at a path or, for a bare name that is no bundle here, the one of that name in the store."""
    path = Path(model)
    in_store = store_dir() / path
    is_name = isinstance(model, str) and _NAME.fullmatch(model) is not None
    if is_name and not (path / MANIFEST).is_file():
        if not in_store.is_dir():
            raise _unknown(str(model))
        path = in_store
    return open_bundle(path)


def stored_bundles() -> list[str]:
    """The names of all models in the store."""
    folder = store_dir()
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if (path / MANIFEST).is_file())


def latest_stored_bundle() -> str | None:
    """The name of the model that was exported to the store last."""
    folder = store_dir()
    return max(stored_bundles(), key=lambda name: (folder / name / MANIFEST).stat().st_mtime_ns, default=None)


def _unknown(name: str) -> BundleError:
    stored = stored_bundles()
    near = get_close_matches(name, stored, n=3, cutoff=0.5)
    known = f" The store has {', '.join(near or stored[:10])}." if stored else ""
    return BundleError(
        f"no exported model is called {name!r}",
        source=name,
        hint=f"Export it: bcos-sdk export {name}; or pass the folder of a bundle.{known}",
    )
