"""Repeat a request whose error may pass, a bounded number of times, with growing random waits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from bcos_sdk._logs import log
from bcos_sdk.errors import BcosError, ClientClosedError

__all__ = ["Retries", "TryAgainError"]

Result = TypeVar("Result")

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


class TryAgainError(Exception):
    """An attempt failed in a way that may pass. `error` is what the caller gets after the last attempt."""

    def __init__(self, error: BcosError, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after
        """The seconds to wait that the server asked for."""


class Retries:
    """Runs attempts. `stop` ends the waits of all threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._stopped = threading.Event()
        self._random = random.Random()  # noqa: S311 - it spreads the requests of many clients in time

    def run(self, attempt: Callable[[], Result]) -> Result:
        """What the first attempt returns that does not raise a `TryAgainError`."""
        for number in range(self._most + 1):
            self.check()
            try:
                return attempt()
            except TryAgainError as failure:
                self.check()
                if number == self._most:
                    raise failure.error from None
                seconds = self.wait_before(number + 1, failure.after)
                log.info("%s; attempt %d of %d in %.2f s", failure.error.message, number + 2, self._most + 1, seconds)
                self._stopped.wait(seconds)
        raise AssertionError("the last attempt returns or raises")

    def wait_before(self, retry: int, asked: float | None) -> float:
        """Seconds before a retry, counted from 1: between half of 0.1 · 2^(retry − 1) and all of it, at most 5.

        A server may ask for more, up to 5.
        """
        ceiling = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (retry - 1))
        own = ceiling * self._random.uniform(0.5, 1)
        return own if asked is None else max(own, min(asked, _LONGEST_WAIT))

    def check(self) -> None:
        """Raise a `ClientClosedError` after `stop`."""
        if self._stopped.is_set():
            raise ClientClosedError("the client is closed")

    def stop(self) -> None:
        """End the waits, and refuse new attempts."""
        self._stopped.set()
