"""The async calls: their number is bounded, they keep their deadline, and a task can cancel them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from support.slow import PIXELS, SlowBackend, SlowClient

from bcos_sdk import Client
from bcos_sdk.errors import BcosError, DeadlineError, QueueFullError


def test_the_number_of_async_calls_is_bounded_by_the_queue(slow: SlowBackend) -> None:
    async def many(client: Client) -> list[Any]:
        calls = [asyncio.create_task(client.apredict(PIXELS[0])) for _ in range(6)]
        await asyncio.sleep(0.1)
        slow.go.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    with SlowClient(slow, queue=4) as client:
        answers = asyncio.run(many(client))
        assert [type(one) for one in answers] == [list] * 4 + [QueueFullError] * 2
        for _ in range(9):
            with pytest.raises(BcosError):
                asyncio.run(client.apredict(PIXELS[0], timeout=-1))
        assert asyncio.run(client.apredict(PIXELS[0])), "every finished call frees its place"


def test_an_async_call_keeps_its_deadline_while_it_waits_for_a_thread(slow: SlowBackend) -> None:
    async def crowd(client: Client) -> Any:
        calls = [asyncio.create_task(client.apredict(PIXELS[0])) for _ in range(40)]
        await asyncio.sleep(0.2)
        began = time.monotonic()
        with pytest.raises(DeadlineError):
            await client.apredict(PIXELS[0], timeout=0.1)
        waited = time.monotonic() - began
        slow.go.set()
        await asyncio.gather(*calls)
        return waited

    with SlowClient(slow, queue=100) as client:
        assert asyncio.run(crowd(client)) < 10, "the call must not wait for a free thread"


def test_a_cancelled_task_drops_images_that_have_not_run(slow: SlowBackend) -> None:
    async def cancelled(client: Client) -> None:
        task = asyncio.create_task(client.aexplain(PIXELS * 50, top_k=7))
        await asyncio.get_running_loop().run_in_executor(None, slow.begun.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        slow.go.set()

    with SlowClient(slow, queue=1000) as client:
        asyncio.run(cancelled(client))
    assert len(slow.batches) <= 3, "600 images were requested"
