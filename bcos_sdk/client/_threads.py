"""Threads for the work of a client, and values that they hand to the callers.

Ctrl-C may raise `KeyboardInterrupt` in a caller after any call that returns, also inside the Python code of
`threading.Condition`, which then stays locked. `Event`, `Semaphore`, `Future` and `ThreadPoolExecutor` are built on it:
one interrupt can block a worker for ever. Here, callers use only locks in a `with` statement, which releases them in
every case, and `SimpleQueue`, whose operations are single steps. Nothing is locked while a caller waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from bcos_sdk.errors import ClientClosedError, InferenceError

__all__ = ["DaemonThreads", "Pending", "client_closed"]


class Pending:
    """A value that one thread sets and others wait for. The first value counts; later ones are ignored.

    `then` is called in the setting thread each time a value is set.
    """

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self._values: list[Any] = []
        self._signal: SimpleQueue[None] = SimpleQueue()
        self._then = then

    @property
    def is_set(self) -> bool:
        return bool(self._values)

    @property
    def value(self) -> Any:
        return self._values[0]

    def take(self) -> Any:
        """Return the value and forget it, so that this object does not keep it alive."""
        value, self._values[0] = self._values[0], None
        return value

    def set(self, value: Any) -> None:
        self._values.append(value)
        self._signal.put(None)
        if self._then is not None:
            self._then()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the value, at most this many seconds. Return whether it is set."""
        if not self._values:
            with contextlib.suppress(Empty):
                self._signal.get(timeout=seconds)
                self._signal.put(None)  # for other threads that wait
        return self.is_set


class _Task(NamedTuple):
    pending: Pending
    call: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Crew:
    """What the threads of one pool share. It does not refer to the pool, so that a forgotten pool ends its threads."""

    def __init__(self, most: int, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()  # a signal handler may call the client while its thread has the lock
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.running: set[Pending] = set()
        self.closed = False
        self._most = most
        self._threads = 0
        self._idle = 0

    def add_thread(self) -> None:
        """Start a thread unless there are `most`. Raise `RuntimeError` if the system has no thread left."""
        with self.lock:
            if self._threads == self._most:
                return
            self._threads += 1
            self._idle += 1
            name = f"{self.name}-{self._threads}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError:
            with self.lock:
                self._threads -= 1
                self._idle -= 1
            raise

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            with self.lock:
                self._idle -= 1
                last = not self._idle
                self.running.add(task.pending)
            if last:  # the next task must not wait for this one
                with contextlib.suppress(RuntimeError):
                    self.add_thread()
            _run(task)
            with self.lock:
                self._idle += 1
                self.running.discard(task.pending)
            del task  # it may have the last reference to the client
        self.tasks.put(None)  # for the next thread


def _run(task: _Task) -> None:
    if task.pending.is_set:  # cancelled
        return
    try:
        value = task.call(*task.arguments)
    except BaseException as error:  # a thread that ends would leave callers waiting
        value = InferenceError(f"unexpected error: {error!r}")
    task.pending.set(value)


class DaemonThreads:
    """Runs calls in at most `most` threads, in order. A thread is started when all others are busy, the first at once.

    The interpreter does not wait for these threads when it exits, so that a call that never returns cannot keep the
    process alive.
    """

    def __init__(self, most: int, name: str) -> None:
        self._crew = _Crew(most, name)
        self._crew.add_thread()  # now: later the machine may have no thread left

    def submit(self, call: Callable[..., Any], *arguments: Any, pending: Pending | None = None) -> Pending:
        """Queue a call. Its value becomes that of `pending`; after `close` this is a `ClientClosedError`.

        A call whose `pending` is set before it begins does not run.
        """
        task = _Task(pending or Pending(), call, arguments)
        with self._crew.lock:
            closed = self._crew.closed
            if not closed:
                self._crew.tasks.put(task)
        if closed:
            task.pending.set(client_closed())
        return task.pending

    def close(self) -> None:
        """Refuse new calls, and end the threads after the calls that wait."""
        with self._crew.lock:
            self._crew.closed = True
            self._crew.tasks.put(None)

    def cancel(self) -> None:
        """Give a `ClientClosedError` to everyone who waits for a call. Calls that have not begun do not run."""
        with self._crew.lock:
            waiting = [*self._crew.running]
            with contextlib.suppress(Empty):
                while True:
                    task = self._crew.tasks.get_nowait()
                    if task is not None:
                        waiting.append(task.pending)
            if self._crew.closed:
                self._crew.tasks.put(None)
        for pending in waiting:
            pending.set(client_closed())

    def wait(self, seconds: Callable[[], float | None]) -> None:
        """Wait until the calls that run now have returned. `seconds` returns the time that is left."""
        for pending in list(self._crew.running):
            pending.wait(seconds())

    def __del__(self) -> None:
        self._crew.tasks.put(None)


def client_closed() -> ClientClosedError:
    return ClientClosedError("the client is closed")
