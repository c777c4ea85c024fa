"""The async calls of a client: `apredict`, `aexplain` and `aclose`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, overload

from bcos_sdk.client._arguments import TOP_K, Images, OnError
from bcos_sdk.client._batches import queue_full
from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.client._layers import Direction, Position
from bcos_sdk.client._targets import Targets
from bcos_sdk.client._threads import DaemonThreads, Pending, client_closed
from bcos_sdk.errors import BcosError
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["CLOSE_TIMEOUT", "AsyncCalls"]

CLOSE_TIMEOUT = 30.0
"""How many seconds `close` waits by default for images that are not finished."""

_THREADS = 32
_GRACE = 0.5
"""Seconds after its deadline in which a call can still return the images that were finished in time."""


class AsyncCalls(ABC):
    """Runs calls in a pool of threads. At most `queue` calls run or wait; further calls raise `QueueFullError`."""

    def __init__(self, queue: int) -> None:
        self._most_async_calls = queue
        self._async_lock = threading.RLock()  # a signal handler may call the client while its thread has the lock
        self._async_calls: set[_Answer] = set()
        self._async_threads: DaemonThreads | None = None
        self._async_closed = False

    @overload
    async def apredict(
        self, images: Images, *, top_k: int = ..., on_error: Literal["raise"] = ..., timeout: float | None = ...
    ) -> list[Prediction]: ...
    @overload
    async def apredict(
        self, images: Images, *, top_k: int = ..., on_error: OnError, timeout: float | None = ...
    ) -> list[Prediction | Failure]: ...
    async def apredict(
        self, images: Images, *, top_k: int = TOP_K, on_error: OnError = "raise", timeout: float | None = None
    ) -> Any:
        """`predict` without blocking the event loop. If the task is cancelled, images that have not run are dropped.

        The timeout holds in every case: if an iterator or a file of yours blocks, the call raises `DeadlineError` half
        a second after the timeout. Until your code returns, it occupies one of 32 threads.
        """
        return await self._in_thread(partial(self._predict, images, top_k, on_error), timeout)

    @overload
    async def aexplain(
        self,
        images: Images,
        *,
        targets: Targets = ...,
        top_k: int = ...,
        weights: bool = ...,
        on_error: Literal["raise"] = ...,
        timeout: float | None = ...,
    ) -> list[Explained]: ...
    @overload
    async def aexplain(
        self,
        images: Images,
        *,
        targets: Targets = ...,
        top_k: int = ...,
        weights: bool = ...,
        on_error: OnError,
        timeout: float | None = ...,
    ) -> list[Explained | Failure]: ...
    async def aexplain(
        self,
        images: Images,
        *,
        targets: Targets = None,
        top_k: int = 1,
        weights: bool = False,
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """`explain` without blocking the event loop, like `apredict`."""
        return await self._in_thread(partial(self._explain, images, targets, top_k, weights, on_error), timeout)

    async def aexplain_features(
        self,
        images: Images,
        *,
        layer: str,
        target: int | str | None = None,
        top_k: int = TOP_K,
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """`explain_features` without blocking the event loop, like `apredict`."""
        return await self._in_thread(partial(self._explain_features, images, layer, target, top_k, on_error), timeout)

    async def aexplain_layer(
        self,
        images: Images,
        *,
        layer: str,
        direction: Direction | list[Direction],
        position: Position | list[Position] = "max",
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """`explain_layer` without blocking the event loop, like `apredict`."""
        call = partial(self._explain_layer, images, layer, direction, position, on_error)
        return await self._in_thread(call, timeout)

    async def aclose(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """`close` without blocking the event loop."""
        answer = _Answer()
        # A thread of its own: all others may be busy. It ends after the call, because nobody keeps the pool.
        DaemonThreads(1, "bcos-sdk-close").submit(answer.run, self.close, timeout, pending=answer.pending)
        await answer.arrival(None)
        answer.result()

    @abstractmethod
    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None: ...

    @abstractmethod
    def _predict(self, images: Images, top_k: int, on_error: OnError, deadline: Deadline) -> Any: ...

    @abstractmethod
    def _explain(
        self, images: Images, targets: Targets, top_k: int, weights: bool, on_error: OnError, deadline: Deadline
    ) -> Any: ...

    @abstractmethod
    def _explain_features(
        self, images: Images, layer: str, target: Any, top_k: int, on_error: OnError, deadline: Deadline
    ) -> Any: ...

    @abstractmethod
    def _explain_layer(
        self, images: Images, layer: str, direction: Any, position: Any, on_error: OnError, deadline: Deadline
    ) -> Any: ...

    @abstractmethod
    def _check_process(self) -> None: ...

    async def _in_thread(self, call: Callable[[Deadline], Any], timeout: float | None) -> Any:
        self._check_process()
        deadline = Deadline(timeout)
        answer = _Answer(then=self._async_calls.discard)
        try:
            self._start(answer, call, deadline)
            arrived = await answer.arrival(deadline.remaining())
            if not arrived and answer.begun:
                await answer.arrival(_GRACE)
            return answer.result()
        finally:
            deadline.cancel()  # the task may have been cancelled: drop what has not run
            answer.pending.set(None)
            if not answer.begun:
                self._async_calls.discard(answer)

    def _start(self, answer: _Answer, call: Callable[[Deadline], Any], deadline: Deadline) -> None:
        with self._async_lock:
            if self._async_closed:
                raise client_closed()
            if len(self._async_calls) >= self._most_async_calls:
                raise queue_full()
            if self._async_threads is None:
                try:
                    self._async_threads = DaemonThreads(_THREADS, "bcos-sdk-async")
                except RuntimeError:  # the system has no thread left
                    raise queue_full() from None
            self._async_calls.add(answer)
            self._async_threads.submit(answer.run, call, deadline, pending=answer.pending)

    def _close_async(self, deadline: Deadline) -> None:
        """Refuse new calls. Running ones return soon, unless they wait for code of the caller."""
        with self._async_lock:
            self._async_closed = True
            threads = self._async_threads
        if threads is not None:
            threads.close()
            threads.wait(lambda: _GRACE if deadline.passed else deadline.remaining())
            threads.cancel()


class _Answer:
    """What a call in a thread returns or raises, for one task of an event loop. `then` is called when it has ended."""

    def __init__(self, then: Callable[[_Answer], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._then = then
        self.pending = Pending(then=self._wake)
        self.begun = False

    def run(self, call: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
        """Run the call. This is done in the thread."""
        self.begun = True
        try:
            return call(*arguments), None
        except BaseException as error:  # it belongs to the task
            return None, error
        finally:
            if self._then is not None:
                self._then(self)

    async def arrival(self, seconds: float | None) -> bool:
        """Wait at most this many seconds. Return whether the call has ended."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)
        return self.pending.is_set

    def result(self) -> Any:
        """Return or raise what the call did; `DeadlineError` if it has not ended."""
        if not self.pending.is_set:
            raise deadline_exceeded("the call did not end within its timeout")
        outcome = self.pending.take()
        if isinstance(outcome, BcosError):  # the client was closed
            raise outcome
        value, error = outcome
        try:
            if error is not None:
                raise error
            return value
        finally:
            del outcome, error  # the traceback of the error refers to this frame

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._arrived.set)
