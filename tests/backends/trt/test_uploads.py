"""What a client sends to the simulated GPU: pixels instead of encoded images, and wide batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import MAX_BATCH, SIZE, copy_of, cpu_backend, cropped, random_pixels, small_bundle
from support.gpu_machine import GpuMachine

from bcos_sdk import Client
from bcos_sdk.backends import open_backend
from bcos_sdk.backends.tensorrt import Cuda, key_for_gpu
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import OutOfMemoryError
from bcos_sdk.images import encode

BYTES_OF_PIXELS = SIZE[0] * SIZE[1] * 3


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every copy to the GPU."""
    sizes: list[int] = []
    upload = Cuda.upload

    def watched(self: Cuda, device: int, host: int, size: int, stream: int) -> None:
        sizes.append(size)
        upload(self, device, host, size, stream)

    monkeypatch.setattr(Cuda, "upload", watched)
    return sizes


def pixels_of(count: int, seed: int = 0) -> Any:
    return np.stack([cropped(one) for one in random_pixels(count, seed)])


@pytest.mark.usefixtures("machine")
def test_a_client_uploads_pixels(bundle: Bundle, uploads: list[int]) -> None:
    """An encoded image has eight times their bytes."""
    with Client(bundle.path, device="tensorrt") as client:
        client.predict(random_pixels(2))
        uploads.clear()
        client.predict(random_pixels(MAX_BATCH))
        assert uploads == [MAX_BATCH * BYTES_OF_PIXELS]
        client.explain(random_pixels(1))
        uploads.clear()
        client.explain(random_pixels(1))
        assert sorted(uploads) == [8, BYTES_OF_PIXELS]


@pytest.mark.usefixtures("machine")
def test_pixels_and_encoded_images_give_the_results_of_the_cpu(bundle: Bundle) -> None:
    """The second kind has no exact pixels: its values lie between the 256 levels."""
    colours = [encode(one)[:3] * np.float32(0.999) for one in pixels_of(3, seed=5)]
    between = [np.concatenate([one, 1 - one]) for one in colours]
    pixels = random_pixels(3)
    calls: list[list[Any]] = [pixels, between, [pixels[0], between[0], pixels[1]]]
    with Client(bundle.path, device="tensorrt") as gpu, Client(bundle.path, device="cpu") as cpu:
        for call in calls:
            for got, want in zip(gpu.explain(call, weights=True), cpu.explain(call, weights=True), strict=True):
                one, other = got.explanations[0], want.explanations[0]
                assert one.completeness.passed
                np.testing.assert_allclose(one.weights, other.weights, rtol=1e-3, atol=1e-5)
                np.testing.assert_allclose(one.completeness.logit, other.completeness.logit, rtol=1e-5)


def test_several_targets_of_a_full_batch_are_one_run(machine: GpuMachine, bundle: Bundle) -> None:
    with Client(bundle.path, device="tensorrt") as client:
        client.explain(random_pixels(1))
        machine.trt.runs.clear()
        results = client.explain(random_pixels(MAX_BATCH), top_k=3)
    assert [run["targets"] for _, run in machine.trt.runs] == [(MAX_BATCH, 3)]
    assert all(len(result.explanations) == 3 for result in results)


def test_a_batch_that_does_not_fit_into_memory_runs_in_halves(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, targets = pixels_of(MAX_BATCH), np.tile(np.arange(4), (MAX_BATCH, 1))
    backend = open_backend(bundle, "tensorrt")
    largest, allocate, refused = 1000 * MAX_BATCH // 2 * 4, machine.cuda.cudaMalloc, []

    def small_memory(size: int) -> Any:
        if size > largest and size % 1000 == 0:
            refused.append(size)
            return 2, None
        return allocate(size)

    monkeypatch.setattr(machine.cuda, "cudaMalloc", small_memory)
    machine.trt.runs.clear()
    backend.explain(pixels, targets, weights=False)
    attempts = len(refused)
    got = backend.explain(pixels, targets, weights=False)
    want = cpu_backend(bundle).explain(np.stack([encode(one) for one in pixels]), targets, weights=False)
    np.testing.assert_allclose(got.contributions, want.contributions, rtol=1e-4, atol=1e-6)
    assert got.logits.shape == want.logits.shape
    assert [run["targets"][0] for _, run in machine.trt.runs] == [MAX_BATCH // 2] * 4
    assert set(refused) == {1000 * MAX_BATCH * 4}
    assert len(refused) == attempts, "the second call knows what does not fit"
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}


def test_one_image_that_does_not_fit_is_an_error(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend(bundle, "tensorrt")
    monkeypatch.setattr(machine.cuda, "cudaMalloc", lambda _size: (2, None))
    with pytest.raises(OutOfMemoryError):
        backend.explain(pixels_of(2), np.zeros((2, 4), int), weights=False)


def test_one_image_has_a_profile_of_its_own(machine: GpuMachine, bundle: Bundle) -> None:
    """TensorRT chooses the kernels of a profile for one shape. TensorRT for RTX chooses them at each run."""
    graph = bundle.explain_graph
    single, wide = key_for_gpu(bundle, graph, "tensorrt", 0, tf32=False).profiles
    assert key_for_gpu(bundle, graph, "tensorrt_rtx", 0, tf32=False).profiles == (wide,)
    assert single["targets"] == ((1, 1), (1, 1), (1, 1))
    assert wide["targets"] == ((1, 1), (MAX_BATCH, 1), (MAX_BATCH, MAX_BATCH))
    assert wide["pixels"][2] == (MAX_BATCH, *SIZE, 3)
    backend = open_backend(bundle, "tensorrt")
    machine.trt.runs.clear()
    for count, targets in ((1, 1), (1, 2), (3, 1), (1, 1)):
        backend.explain(pixels_of(3)[:count], np.zeros((count, targets), int), weights=False)
    assert [profile for profile, _ in machine.trt.runs] == [0, 1, 1, 0]
