"""The folders of this package: built-in files, cache, the store of exported models, and the user's configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bcos_sdk.errors import InputError, shown

__all__ = ["builtin_dir", "cache_dir", "config_dir", "expanded", "store_dir"]


def expanded(path: str, *, origin: str) -> Path:
    """The path with `~` and `~user` replaced by the home folder. `origin` says in an error where the path is from."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(
            f"{origin} is {shown(path)}, but there is no such user, or the home folder is not known",
            source=origin,
            hint="Write the whole path, without ~.",
        ) from None


def builtin_dir() -> Path:
    """The folder of the model that ships with this package."""
    return Path(__file__).resolve().parent / "builtin"


def cache_dir() -> Path:
    """The folder for files that can be downloaded or built again: BCOS_SDK_CACHE, or the platform's cache folder.

    The folder is not created.
    """
    if override := os.environ.get("BCOS_SDK_CACHE"):
        return expanded(override, origin="BCOS_SDK_CACHE")
    if sys.platform == "win32":
        return _from_environment("LOCALAPPDATA", "~/AppData/Local") / "bcos-sdk" / "Cache"
    if sys.platform == "darwin":
        return expanded("~/Library/Caches/bcos-sdk", origin="the cache folder")
    return _from_environment("XDG_CACHE_HOME", "~/.cache") / "bcos-sdk"


def config_dir() -> Path:
    """The folder of the key that marks what this user has built: BCOS_SDK_CONFIG, or one in the platform's own.

    The folder is not created.
    """
    if override := os.environ.get("BCOS_SDK_CONFIG"):
        return expanded(override, origin="BCOS_SDK_CONFIG")
    if sys.platform == "win32":
        return _from_environment("LOCALAPPDATA", "~/AppData/Local") / "bcos-sdk" / "Config"
    if sys.platform == "darwin":
        return expanded("~/Library/Application Support/bcos-sdk", origin="the folder of the key")
    return _from_environment("XDG_CONFIG_HOME", "~/.config") / "bcos-sdk"


def store_dir() -> Path:
    """The folder of exported models by name: BCOS_SDK_STORE, or a folder in the platform's data folder.

    The folder is not created.
    """
    if override := os.environ.get("BCOS_SDK_STORE"):
        return expanded(override, origin="BCOS_SDK_STORE")
    if sys.platform == "win32":
        return _from_environment("LOCALAPPDATA", "~/AppData/Local") / "bcos-sdk" / "exports"
    if sys.platform == "darwin":
        return expanded("~/Library/Application Support/bcos-sdk/exports", origin="the store")
    return _from_environment("XDG_DATA_HOME", "~/.local/share") / "bcos-sdk" / "exports"


def _from_environment(variable: str, default: str) -> Path:
    return expanded(os.environ.get(variable) or default, origin=variable)
