"""The deadline of a call."""

from __future__ import annotations

import math
import threading
import time

from bcos_sdk.errors import DeadlineError, InputError

__all__ = ["Deadline", "deadline_exceeded"]


class Deadline:
    """A per-call deadline, shared by all threads that work on the call. `cancel` moves it to now."""

    def __init__(self, seconds: float | None) -> None:
        try:
            budget = math.inf if seconds is None else float(seconds)
        except (TypeError, ValueError):
            budget = math.nan
        if math.isnan(budget):
            raise InputError(
                f"timeout is {seconds!r}, expected a number of seconds or None",
                source="timeout",
                hint="Pass a number of seconds, or None for no deadline.",
            )
        self._end = time.monotonic() + budget

    def remaining(self) -> float | None:
        """Seconds that are left, at least 0; None if the wait is unlimited, as the `threading` module expects it."""
        left = max(0.0, self._end - time.monotonic())
        return None if left > threading.TIMEOUT_MAX else left

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0

    def cancel(self) -> None:
        """Let the deadline pass now, so that work for this call that has not started is dropped."""
        self._end = time.monotonic()


def deadline_exceeded() -> DeadlineError:
    return DeadlineError("the image was not finished within the timeout of the call")
