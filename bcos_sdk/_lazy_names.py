"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["import_on_first_use"]


def import_on_first_use(
    package: str, homes: Mapping[str, str], prepare: Callable[[], None] = lambda: None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` has the submodule of each name. `prepare` runs before an import."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        prepare()
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)  # the next access does not come here
        return found

    return find
