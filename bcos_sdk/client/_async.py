"""The async calls of a client: `apredict` and `aexplain`."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar, overload

from bcos_sdk.client._arguments import TOP_K, Images, OnError
from bcos_sdk.client._batches import client_closed, queue_full
from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.client._targets import Targets
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["AsyncCalls"]

Result = TypeVar("Result")
_THREADS = 32


class AsyncCalls(ABC):
    """Runs calls in a pool of threads. At most `queue` calls run or wait; further calls raise `QueueFullError`."""

    def __init__(self, queue: int) -> None:
        self._async_threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bcos-sdk-async")
        self._async_slots = threading.BoundedSemaphore(queue)

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
        """`predict` without blocking the event loop. If the task is cancelled, images that have not run are dropped."""
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
        """`explain` without blocking the event loop. If the task is cancelled, images that have not run are dropped."""
        return await self._in_thread(partial(self._explain, images, targets, top_k, weights, on_error), timeout)

    @abstractmethod
    def _predict(self, images: Images, top_k: int, on_error: OnError, deadline: Deadline) -> Any: ...

    @abstractmethod
    def _explain(
        self, images: Images, targets: Targets, top_k: int, weights: bool, on_error: OnError, deadline: Deadline
    ) -> Any: ...

    @abstractmethod
    def _check_process(self) -> None: ...

    async def _in_thread(self, call: Callable[[Deadline], Result], timeout: float | None) -> Result:
        self._check_process()
        deadline = Deadline(timeout)
        if not self._async_slots.acquire(blocking=False):
            raise queue_full()
        try:
            running = self._async_threads.submit(call, deadline)
        except RuntimeError:
            self._async_slots.release()
            raise client_closed() from None
        running.add_done_callback(lambda _: self._async_slots.release())
        seconds = deadline.remaining()
        # A running call respects its deadline and returns the finished images. A call that still waits for a thread
        # must be cancelled at the deadline.
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, running.cancel)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if deadline.passed and running.cancelled():
                raise deadline_exceeded() from None
            deadline.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
