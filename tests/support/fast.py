"""Which parameters of a test run in `make test`; `make test-full` runs all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["only_fast"]


def only_fast(names: Iterable[str], fast: Collection[str]) -> list[Any]:
    """A parameter for each name. Names that are not in `fast` run only in `make test-full`."""
    listed = [*names]
    assert {*fast} <= {*listed}
    return [pytest.param(name, marks=[] if name in fast else [pytest.mark.full]) for name in listed]
