"""Runs overlap on the simulated GPU, and no memory is touched while it is in flight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import MAX_BATCH, copy_of, cpu_backend, cropped, random_pixels, small_bundle
from support.gpu_machine import GpuMachine
from support.gpu_order import HOST, Order

from bcos_sdk import Client
from bcos_sdk.backends import ImageList, open_backend
from bcos_sdk.backends.tensorrt import Cuda, EngineGraph, Slot
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.images import encode


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def pixels_of(count: int, seed: int = 0) -> Any:
    return np.stack([cropped(one) for one in random_pixels(count, seed)])


def start_three(bundle: Bundle) -> list[tuple[int, Any]]:
    """Three runs of growing size, each started before the one before is finished; the results with their seeds."""
    backend = open_backend(bundle, "tensorrt")
    started = [
        (seed, backend.start_explain(pixels_of(count, seed), np.full((count, 1), seed), weights=True))
        for seed, count in enumerate((1, 2, MAX_BATCH))
    ]
    outputs = [(seed, finish()) for seed, finish in started]
    backend.close()
    return outputs


def test_runs_that_overlap_return_their_own_results(machine: GpuMachine, bundle: Bundle) -> None:
    truth = cpu_backend(bundle)
    for seed, got in start_three(bundle):
        count = len(got.logits)
        images = np.stack([encode(one) for one in pixels_of(count, seed)])
        want = truth.explain(images, np.full((count, 1), seed), weights=True)
        for name in ("logits", "classes", "contributions", "bias_terms", "weights"):
            np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-4, atol=1e-6)
    assert machine.cuda.memory == {"device": {}, "pinned": {}}


def test_a_run_is_queued_while_the_last_one_is_on_the_gpu(machine: GpuMachine, bundle: Bundle) -> None:
    backend = open_backend(bundle, "tensorrt")
    backend.predict(pixels_of(MAX_BATCH))
    machine.cuda.log.clear()
    backend.predict(pixels_of(3 * MAX_BATCH))
    one = ["upload", "compute", "download"]
    assert machine.cuda.log == [*one, *one, "wait", *one, "wait", "wait"]


BREAK: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "compute before the upload": (Slot, "compute_after_uploads", lambda _self: None),
    "no wait of any stream": (Cuda, "wait_for_event", lambda _self, _stream, _event: None),
    "no wait of the host for results": (Cuda, "wait_for_host", lambda _self, _event: None),
    "no wait before scratch memory is freed": (Cuda, "wait", lambda _self, _stream: None),
}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("case", BREAK)
def test_the_simulated_gpu_notices(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Without any one of these steps, a run touches memory that another step may still use."""
    monkeypatch.setattr(*BREAK[case])
    with pytest.raises(AssertionError, match="may still be in flight"):
        start_three(bundle)


@pytest.mark.usefixtures("machine")
def test_one_slot_for_two_runs_is_noticed(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = EngineGraph._queue

    def same_slot(self: EngineGraph, _slot: Slot, *rest: Any) -> Any:
        return queue(self, self._slots[0], *rest)

    monkeypatch.setattr(EngineGraph, "_queue", same_slot)
    with pytest.raises(AssertionError, match="may still be in flight"):
        start_three(bundle)


def test_an_error_leaves_nothing_in_flight(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend(bundle, "tensorrt")
    first = backend.start_predict(pixels_of(2))
    with monkeypatch.context() as patch:
        patch.setattr(EngineGraph, "_reserve_scratch", lambda _self, _execution, _shapes: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            backend.start_predict(pixels_of(2, seed=1))
    again = backend.start_predict(pixels_of(2, seed=1))
    want = cpu_backend(bundle).predict(np.stack([encode(one) for one in pixels_of(2, seed=1)]))
    np.testing.assert_allclose(again(), want, rtol=1e-4, atol=1e-6)
    assert first().shape == want.shape
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}


@pytest.mark.usefixtures("machine")
def test_images_are_stacked_in_pinned_memory_only(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client makes no batch of its own first."""
    stack = np.stack
    with Client(bundle.path, device="tensorrt") as client:
        want = client.predict(random_pixels(3))
        monkeypatch.setattr(np, "stack", lambda *_: 1 / 0)
        got = client.predict(random_pixels(3))
        monkeypatch.setattr(np, "stack", stack)
    assert [one.classes for one in got] == [one.classes for one in want]


def test_a_list_of_images_writes_what_a_stack_has() -> None:
    images = list(pixels_of(3))
    listed = ImageList(images)
    batch = np.empty((2, *images[0].shape), np.uint8)
    listed[1:].write_to(batch)
    assert np.array_equal(batch, np.stack(images[1:]))
    assert (len(listed), listed.shape, listed.dtype) == (3, (3, *images[0].shape), np.dtype(np.uint8))


def test_clocks_order_what_events_order() -> None:
    order = Order()
    order.step(1)
    order.access(1, 100, 10, "first", writes=True)
    order.record(50, 1)
    order.step(2)
    with pytest.raises(AssertionError, match="second touches memory while 'first'"):
        order.access(2, 105, 10, "second", writes=False)
    order.access(2, 110, 10, "beside it", writes=True)
    order.wait(2, 50)
    order.access(2, 105, 10, "second", writes=False)
    order.step(HOST)
    with pytest.raises(AssertionError):
        order.access(HOST, 100, 4, "the host", writes=True)
    order.synchronize(2)
    order.access(HOST, 100, 4, "the host", writes=True)
