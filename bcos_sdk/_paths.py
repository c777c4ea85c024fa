"""The folders of this package: built-in files, cache, the store of exported models, and the user's configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["builtin_dir", "cache_dir", "config_dir", "store_dir"]


def builtin_dir() -> Path:
    """The folder of the model that ships with this package."""
    return Path(__file__).resolve().parent / "builtin"


def cache_dir() -> Path:
    """The folder for files that can be downloaded or built again: BCOS_SDK_CACHE, or the platform's cache folder.

    The folder is not created.
    """
    if override := os.environ.get("BCOS_SDK_CACHE"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "bcos-sdk" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/bcos-sdk").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bcos-sdk"


def config_dir() -> Path:
    """The folder of the key that marks what this user has built: BCOS_SDK_CONFIG, or one in the platform's own.

    The folder is not created.
    """
    if override := os.environ.get("BCOS_SDK_CONFIG"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "bcos-sdk" / "Config"
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/bcos-sdk").expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "bcos-sdk"


def store_dir() -> Path:
    """The folder of exported models by name: BCOS_SDK_STORE, or a folder in the platform's data folder.

    The folder is not created.
    """
    if override := os.environ.get("BCOS_SDK_STORE"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "bcos-sdk" / "exports"
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/bcos-sdk/exports").expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "bcos-sdk" / "exports"
