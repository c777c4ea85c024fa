"""Ctrl-C and SIGTERM as exceptions that end a command, clean up and give its exit code."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "Terminated", "exit_code_of", "received_interrupt", "watch_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORT_FRAME = "<frozen importlib._bootstrap>"
_PAUSE_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 10.0


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM. It cleans up as after Ctrl-C."""


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    """128 plus the number of the signal, as shells report it: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


class Interrupts:
    """Raises the exception of a signal. During an import it waits for the end of the import.

    Some packages catch every exception while they import their libraries. They would swallow the interrupt, and the
    command would go on. A second signal, or an import of more than ten seconds, raises at once.
    """

    def __init__(self) -> None:
        self.received: KeyboardInterrupt | None = None
        """The last interrupt. If the command ends as usual, something has swallowed it."""
        self._waiting_until: float | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.received = Terminated("terminated") if number == signal.SIGTERM else KeyboardInterrupt("interrupted")
        if self._waiting_until is None and _is_importing(frame) and hasattr(signal, "setitimer"):
            self._waiting_until = time.monotonic() + _LONGEST_DELAY_SECONDS
            signal.setitimer(signal.ITIMER_REAL, _PAUSE_SECONDS)
            return
        self._raise()

    def on_alarm(self, _number: int, frame: FrameType | None) -> None:
        if self._waiting_until is None:
            return
        if _is_importing(frame) and time.monotonic() < self._waiting_until:
            signal.setitimer(signal.ITIMER_REAL, _PAUSE_SECONDS)
            return
        self._raise()

    def _raise(self) -> None:
        self._waiting_until = None
        assert self.received is not None
        raise self.received


_watching = Interrupts()


def received_interrupt() -> KeyboardInterrupt | None:
    """The interrupt that this command has received. A library may have swallowed it, or raised another exception."""
    return _watching.received


@contextmanager
def watch_signals() -> Iterator[Interrupts]:
    """Raise signals as exceptions inside the block. Outside the main thread, Python receives no signals."""
    global _watching
    interrupts = _watching = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    handlers: dict[int, Callable[[int, FrameType | None], None]] = dict.fromkeys(_SIGNALS, interrupts.on_signal)
    if hasattr(signal, "SIGALRM"):
        handlers[signal.SIGALRM] = interrupts.on_alarm
    before = {number: signal.getsignal(number) for number in handlers}
    # A process that was started in the background ignores SIGINT. It must stay so.
    chosen = {number: handler for number, handler in handlers.items() if before[number] is not signal.SIG_IGN}
    for number, handler in chosen.items():
        signal.signal(number, handler)
    try:
        yield interrupts
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number in chosen:
            signal.signal(number, before[number])


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FRAME:
            return True
        frame = frame.f_back
    return False
