"""CUDA graphs on the simulated GPU: captured after a first run, launched for repeated shapes, and never stale."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import MAX_BATCH, copy_of, cpu_backend, cropped, random_pixels, small_bundle
from support.fake_gpu import FakeContext, FakeTensorRT
from support.gpu_machine import GpuMachine, forget, uninstall

from bcos_sdk import Client
from bcos_sdk.backends import Backend, open_backend
from bcos_sdk.backends.tensorrt import GraphedExecution
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import InferenceError
from bcos_sdk.images import encode


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def pixels_of(count: int, seed: int = 0) -> Any:
    return np.stack([cropped(one) for one in random_pixels(count, seed)])


def explain(backend: Backend, truth: Backend, count: int, targets: int, seed: int) -> None:
    """Compare one explanation with the CPU."""
    pixels, wanted = pixels_of(count, seed), (np.arange(count * targets).reshape(count, targets) + seed) % 7
    got = backend.explain(pixels, wanted, weights=True)
    want = truth.explain(np.stack([encode(one) for one in pixels]), wanted, weights=True)
    for name in ("logits", "classes", "contributions", "bias_terms", "weights"):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-4, atol=1e-6)


def test_repeated_shapes_are_launched_as_graphs(machine: GpuMachine, bundle: Bundle) -> None:
    backend, truth = open_backend(bundle, "tensorrt", cuda_graphs=True), cpu_backend(bundle)
    for seed in range(7):
        explain(backend, truth, 2, 1, seed)
    machine.cuda.log.clear()
    explain(backend, truth, 2, 1, 7)
    assert machine.cuda.log == ["upload", "upload", "launch", "compute", *["download"] * 5, "wait"]
    backend.close()
    assert machine.cuda.graphs == {}
    assert machine.cuda.memory == {"device": {}, "pinned": {}}
    assert machine.cuda.streams == machine.cuda.events == {}


def test_without_the_option_nothing_is_captured(machine: GpuMachine, bundle: Bundle) -> None:
    backend, truth = open_backend(bundle, "tensorrt"), cpu_backend(bundle)
    for seed in range(6):
        explain(backend, truth, 2, 1, seed)
    assert "launch" not in machine.cuda.log


SHAPES = [(1, 1), (2, 1), (1, 3), (2, 2), (MAX_BATCH, 1), (3, 1), (1, 2), (MAX_BATCH, MAX_BATCH), (2, 3)]


def run_every_shape(bundle: Bundle) -> Backend:
    backend, truth = open_backend(bundle, "tensorrt", cuda_graphs=True), cpu_backend(bundle)
    for seed, (count, targets) in enumerate([one for shape in SHAPES for one in [shape] * 4] + SHAPES * 3):
        explain(backend, truth, count, targets, seed)
    return backend


def test_growing_and_changing_shapes_are_right(machine: GpuMachine, bundle: Bundle) -> None:
    """Larger runs move the buffers of graphs that were captured before, and there are more shapes than are kept."""
    backend, truth = run_every_shape(bundle), cpu_backend(bundle)
    for seed in range(20):  # two slots at once
        runs = [
            (again, backend.start_explain(pixels_of(2, again), np.full((2, 1), again % 7), weights=False))
            for again in (seed, seed + 1)
        ]
        for again, finish in runs:
            want = truth.predict(np.stack([encode(one) for one in pixels_of(2, again)]))
            np.testing.assert_allclose(finish().logits, want, rtol=1e-4, atol=1e-6)
    assert Counter(machine.cuda.log)["launch"] > len(SHAPES)
    backend.close()
    assert machine.cuda.graphs == {}
    assert machine.cuda.memory == {"device": {}, "pinned": {}}


@pytest.mark.usefixtures("machine")
def test_a_graph_with_old_addresses_is_noticed(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a graph were kept although its buffers have moved, the simulated GPU would find it."""
    monkeypatch.setattr(GraphedExecution, "_forget_graph", lambda _self: None)
    with pytest.raises(AssertionError):
        run_every_shape(bundle)


def test_an_engine_that_cannot_be_captured_runs_without(
    machine: GpuMachine, bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    machine.cuda.can_capture = False
    backend, truth = open_backend(bundle, "tensorrt", cuda_graphs=True), cpu_backend(bundle)
    for seed in range(6):
        explain(backend, truth, 2, 1, seed)
    assert "launch" not in machine.cuda.log
    assert machine.cuda.graphs == {}
    assert "explain.onnx runs without CUDA graphs: TensorRT cannot be captured on a stream" in caplog.text


def test_a_failed_capture_is_no_lack_of_memory_later(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What TensorRT reports while it is captured must not decide what a later error is."""
    machine.cuda.can_capture = False
    backend = open_backend(bundle, "tensorrt", cuda_graphs=True)
    run, codes = FakeContext.execute_async_v3, machine.trt.ErrorCodeTRT

    def reports(self: FakeContext, stream: int) -> bool:
        if machine.cuda.capturing is None:
            return run(self, stream)
        machine.trt.runtime.error_recorder.report_error(codes.FAILED_ALLOCATION, "no memory for a capture")
        return False

    monkeypatch.setattr(FakeContext, "execute_async_v3", reports)
    for _ in range(6):
        backend.predict(pixels_of(2))
    monkeypatch.setattr(FakeContext, "execute_async_v3", lambda _self, _stream: False)
    with pytest.raises(InferenceError) as caught:
        backend.predict(pixels_of(2))
    assert type(caught.value) is InferenceError


def test_a_client_with_the_option(machine: GpuMachine, bundle: Bundle) -> None:
    pixels = random_pixels(5)
    with Client(bundle.path, device="cpu") as cpu:
        want = cpu.explain(pixels, top_k=2)
    with Client(bundle.path, device="tensorrt", cuda_graphs=True) as client:
        for _again in range(4):
            for one, other in zip(client.explain(pixels, top_k=2), want, strict=True):
                for got, expected in zip(one.explanations, other.explanations, strict=True):
                    assert got.completeness.passed
                    np.testing.assert_allclose(got.contributions, expected.contributions, rtol=1e-4, atol=1e-6)
    assert "launch" in machine.cuda.log


def test_tensorrt_for_rtx_captures_by_itself(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It captures again if an address changes, so each slot has a context of its own."""
    uninstall(monkeypatch, "tensorrt")
    machine.trt = FakeTensorRT(machine.cuda, "tensorrt_rtx")
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", machine.trt)
    forget()
    backend, truth = open_backend(bundle, "tensorrt", cuda_graphs=True), cpu_backend(bundle)
    for seed in range(4):
        explain(backend, truth, 2, 1, seed)
    machine.cuda.log.clear()
    started = [backend.start_explain(pixels_of(2, seed), np.zeros((2, 1), np.int64), weights=False) for seed in (1, 2)]
    for finish in started:
        finish()
    machine.cuda.log.clear()
    for seed in range(6):
        explain(backend, truth, 2, 1, seed)
    assert not {"launch", "capture by TensorRT for RTX"} & set(machine.cuda.log)
    backend.close()


def test_the_strategy_of_tensorrt_for_rtx_exists() -> None:
    trt = pytest.importorskip("tensorrt_rtx")
    assert trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
    assert trt.IRuntimeConfig.cuda_graph_strategy.fset is not None
