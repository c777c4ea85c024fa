"""A progress bar on stderr: done and total, rate, time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from bcos_sdk._plain_text import plain

__all__ = ["Progress"]

_WIDTH = 30


class Progress:
    """`with Progress(total, "images") as progress:` call `progress.step()` after each image.

    The bar is shown only if stderr is a terminal, or as `shown` says. It is drawn at most ten times per second. `scale`
    converts steps to the unit: with the unit "MB" and the scale 1e6, a step is one byte.
    """

    def __init__(self, total: int, unit: str, *, label: str = "", scale: float = 1, shown: bool | None = None) -> None:
        self._total = total
        self._unit = unit
        self._label = f"{plain(label)}  " if label else ""
        self._scale = scale
        self._done = 0
        self._began = time.monotonic()
        self._began_at = 0
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

    def start_at(self, done: int) -> None:
        """Count steps of an earlier run as done. They do not count in the rate."""
        self._done = self._began_at = done

    def step(self, count: int = 1) -> None:
        self._done += count
        if self._shown and time.monotonic() - self._drawn > 0.1:
            self._draw()

    def clear(self) -> None:
        """Remove the line, so that text can be printed. The next step draws it again."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")

    def line(self) -> str:
        elapsed = time.monotonic() - self._began
        rate = (self._done - self._began_at) / elapsed if elapsed else 0.0
        bar = "#" * (_WIDTH * self._done // max(1, self._total))
        done, total = (f"{value / self._scale:.0f}" for value in (self._done, self._total))
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate else ""
        return f"{self._label}[{bar:<{_WIDTH}}] {done}/{total}  {rate / self._scale:.1f} {self._unit}/s  {left}"

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        sys.stderr.write(f"\r\x1b[K{self.line()}")
        sys.stderr.flush()
