"""The deadline of a call."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from bcos_sdk.errors import DeadlineError, InputError

__all__ = ["Deadline", "deadline_exceeded"]


class Deadline:
    """A per-call deadline, shared by all threads that work on the call. `cancel` moves it to now."""

    def __init__(self, seconds: float | None) -> None:
        budget = _seconds(seconds)
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


def _seconds(timeout: Any) -> float:
    """The timeout as a float: infinite for None and for numbers too large for a float, NaN if it is no number."""
    if timeout is None:
        return math.inf
    if isinstance(timeout, (bool, str, bytes, bytearray)):  # float("5") would be 5.0
        return math.nan
    try:
        return float(timeout)
    except OverflowError:
        return math.inf if timeout > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def deadline_exceeded(message: str = "the image was not finished within the timeout of the call") -> DeadlineError:
    return DeadlineError(message)
