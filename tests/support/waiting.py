"""Wait for a condition. Its limit of time is far above what a busy machine needs: it ends a test that would hang."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]

_SECONDS = 120


def until(condition: Callable[[], bool], *, pause: float = 0.01) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, f"the condition did not become true in {_SECONDS} s"
        time.sleep(pause)
