"""Many threads, one client: batches are shared, results are not, the queue is bounded, closing is clean."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bundles import LABELS, MAX_BATCH, cropped, random_pixels, small_bundle

from bcos_sdk import Client, Explained, Failure, Limits, Prediction
from bcos_sdk.backends import Device, ExplainOutputs
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._engine import Engine
from bcos_sdk.errors import BcosError, ClientClosedError, DeadlineError, InferenceError, QueueFullError

THREADS, CALLS = 32, 200
PIXELS = random_pixels(12)


class SlowBackend:
    """Answers with zeros when it is let go, and remembers what it was asked."""

    device = Device("cpu")

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.begun = threading.Event()
        self.closed = False

    def predict(self, images: Any) -> Any:
        self.batches.append((len(images), 0))
        self._wait()
        return np.zeros((len(images), len(LABELS)), np.float32)

    def explain(self, images: Any, targets: Any, *, weights: bool) -> ExplainOutputs:
        self.batches.append(targets.shape)
        self._wait()
        rows, size = targets.shape, images.shape[2:]
        return ExplainOutputs(
            logits=np.zeros((rows[0], len(LABELS)), np.float32),
            classes=np.maximum(targets, 0),
            contributions=np.zeros((*rows, *size), np.float32),
            bias_terms=np.zeros((*rows, 2), np.float32),
            weights=np.zeros((*rows, 6, *size), np.float32) if weights else None,
        )

    def close(self) -> None:
        self.closed = True

    def _wait(self) -> None:
        self.begun.set()
        assert self.go.wait(30)


@pytest.fixture
def slow() -> Iterator[SlowBackend]:
    backend = SlowBackend()
    yield backend
    backend.go.set()


def engine(backend: Any, *, queue: int = 256, max_batch: int = 8) -> Engine:
    manifest = small_bundle().manifest
    return Engine(manifest, backend, max_batch=max_batch, on_incomplete="raise", limits=Limits(queue=queue))


def predict(engine: Engine, count: int = 1, seconds: float | None = None) -> list[Any]:
    return [outcome for _, outcome in engine.predictions(PIXELS[:count], Deadline(seconds), top_k=1)]


def explain(engine: Engine, targets: Any, count: int = 1, *, weights: bool = False) -> list[Any]:
    outcomes = engine.explanations(PIXELS[:count], Deadline(None), targets=targets, top_k=1, weights=weights)
    return [outcome for _, outcome in outcomes]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def waiting(engine: Engine) -> int:
    return sum(len(job.images) for job in engine._runner._waiting)


def test_calls_that_wait_share_batches(slow: SlowBackend) -> None:
    shared = engine(slow)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(predict, shared)
        assert slow.begun.wait(20)
        others = [pool.submit(predict, shared) for _ in range(18)]
        until(lambda: waiting(shared) == 18)
        slow.go.set()
        assert all(isinstance(one.result()[0], Prediction) for one in [first, *others])
    assert [size for size, _ in slow.batches] == [1, 8, 8, 2]
    shared.close()


def test_only_calls_of_one_kind_share_a_batch(slow: SlowBackend) -> None:
    shared = engine(slow)
    with ThreadPoolExecutor(20) as pool:
        blocked = pool.submit(predict, shared)
        assert slow.begun.wait(20)
        calls = [
            pool.submit(explain, shared, 0),
            pool.submit(predict, shared),
            pool.submit(explain, shared, 1),
            pool.submit(explain, shared, [0, 1, 2], 2),
            pool.submit(explain, shared, 2, weights=True),
            pool.submit(predict, shared, 3),
        ]
        until(lambda: waiting(shared) == 9)
        slow.go.set()
        for call in [blocked, *calls]:
            assert not any(isinstance(outcome, BcosError) for outcome in call.result())
    assert slow.batches[0] == (1, 0)
    assert sorted(slow.batches[1:]) == [(1, 1), (2, 1), (2, 3), (4, 0)]
    shared.close()


def test_images_times_targets_is_bounded(slow: SlowBackend) -> None:
    slow.go.set()
    bounded = engine(slow, max_batch=4)
    explain(bounded, [0, 1], 5)
    assert slow.batches == [(2, 2), (2, 2), (1, 2)]
    slow.batches.clear()
    (result, _) = explain(bounded, list(range(len(LABELS))), 2, weights=True)
    assert slow.batches == [(1, 4), (1, 3)] * 2, "more targets than a batch holds are explained in turns"
    assert [one.target.index for one in result.explanations] == list(range(len(LABELS)))
    bounded.close()


def test_a_full_queue_refuses_new_calls_and_keeps_old_ones(slow: SlowBackend) -> None:
    shared = engine(slow, queue=4, max_batch=2)
    with ThreadPoolExecutor(8) as pool:
        running = pool.submit(predict, shared, 2)
        assert slow.begun.wait(20)
        long = pool.submit(predict, shared, 12)
        until(lambda: waiting(shared) == 4)
        with pytest.raises(QueueFullError) as caught:
            predict(shared)
        assert caught.value.retryable
        assert caught.value.code == "queue_full"
        with pytest.raises(QueueFullError):
            shared.predictions(PIXELS, Deadline(None), top_k=1)
        slow.go.set()
        assert len(running.result()) == 2
        assert all(isinstance(one, Prediction) for one in long.result()), "a call that was let in waits for room"
    assert all(isinstance(one, Prediction) for one in predict(shared, 3))
    shared.close()


def test_a_call_larger_than_the_queue_is_served(slow: SlowBackend) -> None:
    slow.go.set()
    small = engine(slow, queue=1, max_batch=8)
    assert all(isinstance(one, Prediction) for one in predict(small, 12))
    small.close()


def test_a_deadline_passes_while_waiting_for_the_device(slow: SlowBackend) -> None:
    shared = engine(slow, max_batch=2)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(predict, shared, 2)
        assert slow.begun.wait(20)
        late = predict(shared, 2, seconds=0.1)
        assert [type(one) for one in late] == [DeadlineError] * 2
        slow.go.set()
        running.result()
    assert isinstance(predict(shared)[0], Prediction)
    assert slow.batches == [(2, 0), (1, 0)], "what nobody waits for is not run"
    shared.close()


def test_an_abandoned_stream_is_not_run_to_its_end(slow: SlowBackend) -> None:
    slow.go.set()
    shared = engine(slow, max_batch=2)
    stream = shared.predictions(iter(PIXELS * 100), Deadline(None), top_k=1)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    predict(shared)
    assert sum(size for size, _ in slow.batches) < 20
    shared.close()


def test_a_failing_device_fails_its_batch_and_no_other() -> None:
    class Failing(SlowBackend):
        def predict(self, images: Any) -> Any:
            if len(images) == 3:
                raise RuntimeError("a wire is loose")
            return super().predict(images)

    backend = Failing()
    backend.go.set()
    shared = engine(backend, max_batch=4)
    outcomes = predict(shared, 11)
    assert [isinstance(one, Prediction) for one in outcomes] == [True] * 8 + [False] * 3
    assert all(isinstance(one, InferenceError) and "a wire is loose" in str(one) for one in outcomes[8:])
    shared.close()


def test_logits_that_are_no_numbers_are_the_failure_of_their_image() -> None:
    class Overflowing(SlowBackend):
        def predict(self, images: Any) -> Any:
            logits = super().predict(images)
            logits[1, 2] = np.nan
            return logits

    backend = Overflowing()
    backend.go.set()
    shared = engine(backend)
    outcomes = predict(shared, 3)
    assert [type(one) for one in outcomes] == [Prediction, InferenceError, Prediction]
    shared.close()


def test_closing_finishes_what_waits_and_refuses_the_rest(slow: SlowBackend) -> None:
    shared = engine(slow, max_batch=2)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(predict, shared, 12) for _ in range(4)]
        assert slow.begun.wait(20)
        until(lambda: waiting(shared) == 14)  # two batches of each call, less the one that runs
        closing = pool.submit(shared.close)
        until(lambda: shared._runner._closed)
        with pytest.raises(ClientClosedError):
            predict(shared)
        slow.go.set()
        closing.result(20)
        for call in calls:
            outcomes = call.result(20)
            assert len(outcomes) == 12
            assert {type(one) for one in outcomes} <= {Prediction, ClientClosedError}
            assert isinstance(outcomes[0], Prediction)
    assert slow.closed


class SlowClient(Client):
    """A client whose device answers when it is told to."""

    def __init__(self, backend: SlowBackend, queue: int) -> None:
        super().__init__(small_bundle().path, device="cpu", limits=Limits(queue=queue))
        self._engine.close()
        self._engine = engine(backend, queue=10_000)


def test_async_calls_are_bounded(slow: SlowBackend) -> None:
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
        assert asyncio.run(client.apredict(PIXELS[0])), "no call keeps its place in the queue"


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
        assert asyncio.run(crowd(client)) < 10, "not only when a thread was free"


def test_a_cancelled_task_drops_what_was_not_run(slow: SlowBackend) -> None:
    async def cancelled(client: Client) -> None:
        task = asyncio.create_task(client.aexplain(PIXELS * 50, top_k=7))
        await asyncio.get_running_loop().run_in_executor(None, slow.begun.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        slow.go.set()

    with SlowClient(slow, queue=1000) as client:
        asyncio.run(cancelled(client))
    assert len(slow.batches) <= 3, "600 images were asked for"


def test_an_endless_stream_ends_when_its_client_is_closed(slow: SlowBackend) -> None:
    slow.go.set()
    client = SlowClient(slow, queue=100)
    stream = client.predict_stream(itertools.cycle(PIXELS))
    assert isinstance(next(stream), Prediction)
    client.close()
    with pytest.raises(ClientClosedError):
        list(itertools.islice(stream, 1000))


def test_a_file_that_nobody_writes_does_not_keep_the_client_open(slow: SlowBackend) -> None:
    """Other callers are served, and closing does not wait for it."""
    slow.go.set()
    client = SlowClient(slow, queue=100)
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool, os.fdopen(reading, "rb") as silent:
        stuck = pool.submit(client.predict, [silent], on_error="return")
        time.sleep(0.1)
        assert len(client.predict(PIXELS)) == len(PIXELS)
        client.close()
        os.close(writing)
        assert isinstance(stuck.result(20)[0], Failure)


def test_a_pipe_is_read_to_its_end() -> None:
    file = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(file, "PNG")
    contents = file.getvalue()
    reading, writing = os.pipe()

    def write() -> None:
        for start in range(0, len(contents), 100):
            os.write(writing, contents[start : start + 100])
            time.sleep(0.001)
        os.close(writing)

    with Client(small_bundle().path, device="cpu") as client, ThreadPoolExecutor(1) as pool:
        pool.submit(write)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            (result,) = client.explain([pipe])
    np.testing.assert_array_equal(result.explanations[0].image, cropped(PIXELS[0]))


def test_no_thread_to_be_had_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    file = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(file, "PNG")
    with Client(small_bundle().path, device="cpu") as client:
        monkeypatch.setattr(threading.Thread, "start", none_left)
        assert len(client.predict([file.getvalue()] * 5)) == 5


def mixed_call(seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Images of several sizes and forms, some of them bad, with all kinds of targets."""
    choose = random.Random(seed)
    pool: list[Any] = [
        *PIXELS,
        b"damaged",
        "missing.png",
        PIXELS[0].astype(np.float32),
        random_pixels(1, 1, (64, 50))[0],
    ]
    images = [choose.choice(pool) for _ in range(choose.randint(1, 4))]
    options: dict[str, Any] = choose.choice(
        [
            {},
            {"top_k": 2},
            {"targets": 3},
            {"targets": ["fox", "lynx vs mean"]},
            {"targets": [[index % 7] * (1 + index % 2) for index in range(len(images))]},
            {"targets": "tabby", "weights": True},
        ]
    )
    return images, options


def same(one: Any, other: Any) -> None:
    """Equal up to rounding: which images share a batch changes the last digits."""
    assert type(one) is type(other)
    if isinstance(one, Failure):
        assert one == other
    elif isinstance(one, Prediction):
        for left, right in zip(one.classes, other.classes, strict=True):
            assert left.index == right.index
            assert left.logit == pytest.approx(right.logit, rel=1e-4, abs=1e-5)
    else:
        assert isinstance(one, Explained)
        same(one.prediction, other.prediction)
        for mine, its in zip(one.explanations, other.explanations, strict=True):
            assert mine.target.label == its.target.label
            assert mine.arrays.keys() == its.arrays.keys()
            np.testing.assert_array_equal(mine.image, its.image)
            np.testing.assert_allclose(mine.contributions, its.contributions, rtol=1e-3, atol=1e-6)


def test_32_threads_with_200_mixed_calls_each() -> None:
    with Client(small_bundle().path, device="cpu", limits=Limits(queue=4 * THREADS * MAX_BATCH)) as client:
        calls = [mixed_call(seed) for seed in range(50)]
        expected = [
            (client.predict(images, on_error="return"), client.explain(images, on_error="return", **options))
            for images, options in calls
        ]

        def work(thread: int) -> int:
            choose = random.Random(thread)
            for _ in range(CALLS):
                number = choose.randrange(len(calls))
                images, options = calls[number]
                if choose.random() < 0.5:
                    got: list[Any] = client.predict(images, on_error="return")
                    wanted: list[Any] = expected[number][0]
                else:
                    got, wanted = client.explain(images, on_error="return", **options), expected[number][1]
                assert len(got) == len(wanted)
                for one, other in zip(got, wanted, strict=True):
                    same(one, other)
            return CALLS

        with ThreadPoolExecutor(THREADS) as pool:
            assert sum(pool.map(work, range(THREADS), timeout=300)) == THREADS * CALLS


def test_closing_under_load() -> None:
    client = Client(small_bundle().path, device="cpu")
    answers: list[str] = []

    def work(thread: int) -> None:
        while True:
            try:
                results = client.predict([PIXELS[thread % 12]] * 3, on_error="return")
            except ClientClosedError:
                return
            answers.extend("ok" if isinstance(one, Prediction) else one.code for one in results)

    with ThreadPoolExecutor(THREADS) as pool:
        threads = [pool.submit(work, thread) for thread in range(THREADS)]
        time.sleep(0.5)
        client.close()
        for thread in threads:
            thread.result(30)
    assert set(answers) <= {"ok", "client_closed"}
    assert answers.count("ok") > THREADS
