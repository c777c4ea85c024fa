"""When nobody waits any more."""

from __future__ import annotations

import math
import threading
import time

from bcos_sdk.errors import DeadlineError, InputError

__all__ = ["Deadline", "deadline_passed"]


class Deadline:
    """A moment after which nobody waits for a result; `cancel` brings it forward to now."""

    def __init__(self, seconds: float | None) -> None:
        try:
            budget = math.inf if seconds is None else float(seconds)
        except (TypeError, ValueError):
            budget = math.nan
        if math.isnan(budget):
            raise InputError(f"timeout is {seconds!r}", source="timeout", hint="It is a number of seconds, or None.")
        self._end = time.monotonic() + budget

    def remaining(self) -> float | None:
        """Seconds as threads take them: none if there is no end in sight."""
        left = max(0.0, self._end - time.monotonic())
        return None if left > threading.TIMEOUT_MAX else left

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0

    def cancel(self) -> None:
        self._end = time.monotonic()


def deadline_passed() -> DeadlineError:
    return DeadlineError("not done in the time given")
