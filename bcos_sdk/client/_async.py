"""The async twins of a client's calls."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar, overload

from bcos_sdk.client._batches import client_closed, queue_full
from bcos_sdk.client._deadline import Deadline, deadline_passed
from bcos_sdk.client._engine import TOP_K
from bcos_sdk.client._outcomes import Images, OnError
from bcos_sdk.client._targets import Targets
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["AsyncCalls"]

Result = TypeVar("Result")
_THREADS = 32


class AsyncCalls(ABC):
    """Runs calls in threads of its own; as many wait as the queue holds images, further ones are refused."""

    def __init__(self, queue: int) -> None:
        self._async_threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bcos-sdk-async")
        self._async_room = threading.BoundedSemaphore(queue)

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
        """`predict` without blocking the event loop; cancelling the task drops what has not been run."""
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
        """`explain` without blocking the event loop."""
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
        if not self._async_room.acquire(blocking=False):
            raise queue_full()
        try:
            running = self._async_threads.submit(call, deadline)
        except RuntimeError:
            self._async_room.release()
            raise client_closed() from None
        running.add_done_callback(lambda _: self._async_room.release())
        seconds = deadline.remaining()
        # A call that has begun ends by itself in time, with what is done; one that waits for a thread must be stopped.
        stop = None if seconds is None else asyncio.get_running_loop().call_later(seconds, running.cancel)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if deadline.passed and running.cancelled():
                raise deadline_passed() from None
            deadline.cancel()
            raise
        finally:
            if stop is not None:
                stop.cancel()
