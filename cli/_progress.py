"""How far a run is: images, images per second, time left. On stderr, and only where somebody watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType

__all__ = ["Progress"]

_WIDTH = 30


class Progress:
    """A line that is drawn over again, at most ten times per second."""

    def __init__(self, total: int, *, shown: bool | None = None) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._drawn = 0.0
        self._shown = sys.stderr.isatty() if shown is None else shown

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._draw()
            sys.stderr.write("\n")

    def step(self) -> None:
        self._done += 1
        if self._shown and time.monotonic() - self._drawn > 0.1:
            self._draw()

    def clear(self) -> None:
        """Make room for a line of text."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")

    def line(self) -> str:
        elapsed = time.monotonic() - self._began
        rate = self._done / elapsed if elapsed else 0.0
        filled = _WIDTH * self._done // max(1, self._total)
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate else ""
        return f"[{'#' * filled:<{_WIDTH}}] {self._done}/{self._total}  {rate:.1f} images/s  {left}"

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        sys.stderr.write(f"\r\x1b[K{self.line()}")
        sys.stderr.flush()
