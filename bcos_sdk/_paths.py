"""Where files are kept between runs: the platform's cache folder, or BCOS_SDK_CACHE."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """The cache folder; read from the environment at each call and not created here."""
    if override := os.environ.get("BCOS_SDK_CACHE"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "bcos-sdk" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/bcos-sdk").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bcos-sdk"
