"""Native objects in a forked child: a runtime that frees one may wait for its threads, which a child does not have."""

from __future__ import annotations

import ctypes
import os
from typing import Any
from weakref import WeakSet

__all__ = ["keep_in_forked_children"]

_owners: WeakSet[Any] = WeakSet()


def keep_in_forked_children(owner: Any) -> None:
    """Never free this object in a process that is forked from this one. Here it is freed as usual."""
    _owners.add(owner)


def _keep() -> None:
    for owner in list(_owners):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))  # a reference that nobody gives back


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep)
