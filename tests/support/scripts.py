"""Import a script of the project that is in no package, such as docs/make_tables.py."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

__all__ = ["load_script"]

_ROOT = Path(__file__).resolve().parents[2]


def load_script(path: str) -> types.ModuleType:
    """The module at a path relative to the project's root."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, _ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
