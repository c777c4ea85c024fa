"""The queue of the device: calls share batches, the queue is bounded, and closing finishes waiting images."""

from __future__ import annotations

import io
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bundles import LABELS, cropped, small_bundle
from support.slow import (
    PIXELS,
    SlowBackend,
    SlowClient,
    explain,
    is_closing,
    predict,
    processor,
    start_predicting,
    waiting,
)
from support.waiting import until

from bcos_sdk import Client, Failure, Prediction
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.errors import BcosError, ClientClosedError, DeadlineError, InferenceError, QueueFullError


def test_waiting_calls_share_batches(slow: SlowBackend) -> None:
    shared = processor(slow)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(predict, shared)
        assert slow.begun.wait(20)
        others = [pool.submit(predict, shared) for _ in range(18)]
        until(lambda: waiting(shared) == 18)
        slow.go.set()
        assert all(isinstance(one.result()[0], Prediction) for one in [first, *others])
    assert [size for size, _ in slow.batches] == [1, 8, 8, 2]
    shared.close(Deadline(None))


def test_only_calls_with_equal_targets_and_outputs_share_a_batch(slow: SlowBackend) -> None:
    shared = processor(slow)
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
    shared.close(Deadline(None))


def test_images_times_targets_is_bounded(slow: SlowBackend) -> None:
    slow.go.set()
    bounded = processor(slow, max_batch=4)
    explain(bounded, [0, 1], 5)
    assert slow.batches == [(2, 2), (2, 2), (1, 2)]
    slow.batches.clear()
    (result, _) = explain(bounded, list(range(len(LABELS))), 2, weights=True)
    assert slow.batches == [(1, 4), (1, 3)] * 2, "targets are split into runs of at most max_batch"
    assert [one.target.index for one in result.explanations] == list(range(len(LABELS)))
    bounded.close(Deadline(None))


def test_a_full_queue_refuses_new_calls_and_finishes_accepted_ones(slow: SlowBackend) -> None:
    shared = processor(slow, queue=4, max_batch=2)
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
            start_predicting(shared, PIXELS)
        slow.go.set()
        assert len(running.result()) == 2
        assert all(isinstance(one, Prediction) for one in long.result()), "an accepted call waits for room"
    assert all(isinstance(one, Prediction) for one in predict(shared, 3))
    shared.close(Deadline(None))


def test_a_call_larger_than_the_queue_is_accepted(slow: SlowBackend) -> None:
    slow.go.set()
    small = processor(slow, queue=1, max_batch=8)
    assert all(isinstance(one, Prediction) for one in predict(small, 12))
    small.close(Deadline(None))


def test_a_deadline_passes_while_waiting_for_the_device(slow: SlowBackend) -> None:
    shared = processor(slow, max_batch=2)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(predict, shared, 2)
        assert slow.begun.wait(20)
        late = predict(shared, 2, seconds=0.1)
        assert [type(one) for one in late] == [DeadlineError] * 2
        slow.go.set()
        running.result()
    assert isinstance(predict(shared)[0], Prediction)
    assert slow.batches == [(2, 0), (1, 0)], "images are not run after their deadline"
    shared.close(Deadline(None))


def test_an_abandoned_stream_is_not_run_to_its_end(slow: SlowBackend) -> None:
    slow.go.set()
    shared = processor(slow, max_batch=2)
    stream = start_predicting(shared, iter(PIXELS * 100))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    predict(shared)
    assert sum(size for size, _ in slow.batches) < 20
    shared.close(Deadline(None))


def test_an_error_of_the_device_fails_only_its_batch() -> None:
    class Failing(SlowBackend):
        def predict(self, images: Any) -> Any:
            if len(images) == 3:
                raise RuntimeError("hardware error")
            return super().predict(images)

    backend = Failing()
    backend.go.set()
    shared = processor(backend, max_batch=4)
    outcomes = predict(shared, 11)
    assert [isinstance(one, Prediction) for one in outcomes] == [True] * 8 + [False] * 3
    assert all(isinstance(one, InferenceError) and "hardware error" in str(one) for one in outcomes[8:])
    shared.close(Deadline(None))


def test_logits_with_nan_fail_only_their_image() -> None:
    class Overflowing(SlowBackend):
        def predict(self, images: Any) -> Any:
            logits = super().predict(images)
            logits[1, 2] = np.nan
            return logits

    backend = Overflowing()
    backend.go.set()
    shared = processor(backend)
    outcomes = predict(shared, 3)
    assert [type(one) for one in outcomes] == [Prediction, InferenceError, Prediction]
    shared.close(Deadline(None))


def test_closing_finishes_waiting_images_and_refuses_new_ones(slow: SlowBackend) -> None:
    shared = processor(slow, max_batch=2)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(predict, shared, 12) for _ in range(4)]
        assert slow.begun.wait(20)
        until(lambda: waiting(shared) == 14)  # two batches of each of the four calls, except the one that runs
        closing = pool.submit(shared.close, Deadline(None))
        until(lambda: is_closing(shared))
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


def test_an_endless_stream_ends_when_its_client_is_closed(slow: SlowBackend) -> None:
    slow.go.set()
    client = SlowClient(slow, queue=100)
    stream = client.predict_stream(itertools.cycle(PIXELS))
    assert isinstance(next(stream), Prediction)
    client.close()
    with pytest.raises(ClientClosedError):
        list(itertools.islice(stream, 1000))


def test_a_file_that_blocks_does_not_block_other_calls_or_close(slow: SlowBackend) -> None:
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


def test_images_are_decoded_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    file = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(file, "PNG")
    with Client(small_bundle().path, device="cpu") as client:
        monkeypatch.setattr(threading.Thread, "start", none_left)
        assert len(client.predict([file.getvalue()] * 5)) == 5
