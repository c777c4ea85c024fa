"""The TensorRT backend on a GPU made of host memory: buffers, streams, profiles and errors are all decided there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bcos_sdk.backends._graphs import Tensor
from bcos_sdk.backends.tensorrt._log import words_of
from hypothesis import given
from hypothesis import strategies as st
from support.bundles import MAX_BATCH, SIZE, copy_of, cpu_backend, cropped, random_pixels, small_bundle
from support.fake_gpu import FakeContext, fake_plan
from support.gpu_machine import GpuMachine

from bcos_sdk import Client
from bcos_sdk.backends import Device, check_device, open_backend
from bcos_sdk.backends.tensorrt import Engine, _flavours, key_for_gpu, obtain_engine
from bcos_sdk.backends.tensorrt._cuda import Buffer, Cuda, PinnedBuffer
from bcos_sdk.backends.tensorrt._graph import EngineGraph, Profile, choose_profile
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import DeviceError, EngineError, InferenceError, OutOfMemoryError
from bcos_sdk.images import encode


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def images(count: int, seed: int = 0) -> Any:
    return np.stack([encode(cropped(pixels)) for pixels in random_pixels(count, seed)])


def explain_graph(bundle: Bundle, profiles: list[dict[str, Any]] | None = None) -> EngineGraph:
    graph = bundle.explain_graph
    key = key_for_gpu(bundle, graph, "tensorrt", 0, tf32=False)
    record = obtain_engine(bundle, graph, [key], 0).record
    plan = fake_plan(graph, profiles or [bundle.input_shapes(graph)])
    return EngineGraph(Engine(plan, record), Cuda(0), graph.name)


def test_a_client_gives_the_same_results_of_the_same_types(machine: GpuMachine, bundle: Bundle) -> None:
    pixels = random_pixels(6)
    with Client(bundle.path, device="tensorrt") as gpu, Client(bundle.path, device="cpu") as cpu:
        assert gpu.device == "tensorrt:0"
        for got, want in zip(gpu.predict(pixels), cpu.predict(pixels), strict=True):
            assert type(got) is type(want)
            assert [one.index for one in got.classes] == [one.index for one in want.classes]
        for weights in (False, True):
            got_all = gpu.explain(pixels, targets=["lynx", "fox vs mean"], weights=weights)
            want_all = cpu.explain(pixels, targets=["lynx", "fox vs mean"], weights=weights)
            for one, other in zip(got_all, want_all, strict=True):
                for got_map, want_map in zip(one.explanations, other.explanations, strict=True):
                    assert got_map.completeness.passed
                    np.testing.assert_allclose(got_map.contributions, want_map.contributions, rtol=1e-4, atol=1e-6)
                    assert got_map.arrays.keys() == want_map.arrays.keys()
    assert machine.builds == ["predict.onnx", "explain.onnx"]


def test_memory_is_made_once_and_given_back(machine: GpuMachine, bundle: Bundle) -> None:
    backend = open_backend(bundle, "tensorrt")
    backend.explain(images(MAX_BATCH), np.full((MAX_BATCH, 1), -1), weights=True)
    made = machine.cuda.allocations
    for count in (1, 3, MAX_BATCH, 2):
        backend.explain(images(count), np.full((count, 1), -1), weights=True)
    assert machine.cuda.allocations == made, "smaller batches use the buffers of larger ones"
    assert machine.trt.contexts == len(machine.cuda.streams) == 2, "one context per stream, one per graph"
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}
    assert machine.cuda.streams == {}


def test_results_stay_as_they_are_when_the_buffers_are_used_again(machine: GpuMachine, bundle: Bundle) -> None:
    backend, truth = open_backend(bundle, "tensorrt"), cpu_backend(bundle)
    targets = np.array([[0, 3]])
    kept = [backend.explain(images(1, seed), targets, weights=True) for seed in range(3)]
    for seed, outputs in enumerate(kept):
        want = truth.explain(images(1, seed), targets, weights=True)
        for name in ("logits", "classes", "contributions", "bias_terms", "weights"):
            np.testing.assert_allclose(getattr(outputs, name), getattr(want, name), rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("machine")
def test_w_of_x_is_fetched_on_request_only(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    download = Cuda.download

    def watched(self: Cuda, host: int, device: int, size: int, stream: int) -> None:
        fetched.append(size)
        download(self, host, device, size, stream)

    monkeypatch.setattr(Cuda, "download", watched)
    backend = open_backend(bundle, "tensorrt")
    fetched.clear()
    assert backend.explain(images(1), np.array([[0]]), weights=False).weights is None
    assert max(fetched) == SIZE[0] * SIZE[1] * 4


def test_batches_larger_than_the_profile_are_cut(machine: GpuMachine, bundle: Bundle) -> None:
    count = 2 * MAX_BATCH + 1
    targets = np.arange(2 * count).reshape(count, 2) % 7
    got = open_backend(bundle, "tensorrt").explain(images(count), targets, weights=False)
    want = cpu_backend(bundle).explain(images(count), targets, weights=False)
    np.testing.assert_allclose(got.contributions, want.contributions, rtol=1e-4, atol=1e-6)
    assert [run["image"][0] for _, run in machine.trt.runs][-3:] == [MAX_BATCH, MAX_BATCH, 1]


@pytest.mark.usefixtures("machine")
def test_more_targets_than_the_profile_takes_are_an_error(bundle: Bundle) -> None:
    with pytest.raises(InferenceError, match=r"takes no .*targets"):
        open_backend(bundle, "tensorrt").explain(images(1), np.zeros((1, MAX_BATCH + 1), np.int64), weights=False)


def test_the_profile_is_chosen_by_the_batch(machine: GpuMachine, bundle: Bundle) -> None:
    wide = bundle.input_shapes(bundle.explain_graph)
    one = {name: (shapes[0], shapes[0], (1, *shapes[2][1:])) for name, shapes in wide.items()}
    graph = explain_graph(bundle, [wide, one])
    outputs: dict[str, Tensor] = {}
    for count in (1, 3, 1):
        graph.run({"image": images(count), "targets": np.zeros((count, 1), np.int64)}, outputs)
    assert [profile for profile, _ in machine.trt.runs] == [1, 0, 1]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(4, 9)), min_size=1, max_size=4), st.integers(1, 10))
def test_a_chosen_profile_takes_the_batch_and_no_tighter_one_does(ranges: list[tuple[int, int]], batch: int) -> None:
    profiles: list[Profile] = [{"image": ((low, 6), (high, 6))} for low, high in ranges]
    place = choose_profile(profiles, {"image": (batch, 6)})
    fitting = [high for low, high in ranges if low <= batch <= high]
    assert (place is None) == (not fitting)
    if place is not None:
        assert ranges[place][1] == min(fitting)
        assert ranges[place][0] <= batch


def test_the_second_gpu_gets_its_own_engine(machine: GpuMachine, bundle: Bundle) -> None:
    open_backend(bundle, "tensorrt:1").close()
    assert set(machine.cuda.device) == {1}
    plans = [path.name for path in (Path(machine.jobs[-1]["plan"]).parent).glob("*.plan")]
    assert all(".sm120." in name for name in plans)
    assert {job["gpu"] for job in machine.jobs if job["task"] != "version"} == {1}


def test_a_plan_that_tensorrt_does_not_load_is_built_again(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_backend(bundle, "tensorrt").close()
    load, refused = machine.trt._load, []

    def refuse_once(plan: bytes) -> Any:
        refused.append(plan)
        return load(b"not a plan" if len(refused) == 1 else plan)

    monkeypatch.setattr(machine.trt, "_load", refuse_once)
    open_backend(bundle, "tensorrt").close()
    assert machine.builds == ["predict.onnx", "explain.onnx", "predict.onnx"]
    assert "does not load the engine of predict.onnx: the plan has no magic tag; it is built again" in caplog.text
    assert "TensorRT did not load it" in caplog.text


def test_auto_does_not_build_what_tensorrt_does_not_load(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_backend(bundle, "tensorrt").close()
    load = machine.trt._load
    monkeypatch.setattr(machine.trt, "_load", lambda _plan: load(b"not a plan"))
    assert open_backend(bundle, "auto").device == Device("cpu")
    assert machine.builds == ["predict.onnx", "explain.onnx"]


@pytest.mark.usefixtures("machine")
def test_a_plan_that_tensorrt_never_loads_is_an_error(bundle: Bundle) -> None:
    record = obtain_engine(
        bundle, bundle.predict_graph, [key_for_gpu(bundle, bundle.predict_graph, "tensorrt", 0, tf32=False)], 0
    ).record
    with pytest.raises(EngineError, match=r"does not load the engine of predict\.onnx: the plan has no magic tag"):
        EngineGraph(Engine(b"not a plan", record), Cuda(0), "predict.onnx")


def test_out_of_memory_can_be_tried_again_with_less(machine: GpuMachine, bundle: Bundle) -> None:
    backend = open_backend(bundle, "tensorrt")
    machine.cuda.room = 1000
    with pytest.raises(OutOfMemoryError, match="cudaErrorMemoryAllocation") as caught:
        backend.explain(images(MAX_BATCH), np.full((MAX_BATCH, 2), -1), weights=False)
    assert caught.value.retryable
    machine.cuda.room = 1 << 30
    backend.explain(images(MAX_BATCH), np.full((MAX_BATCH, 2), -1), weights=False)
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}, "nothing leaks on the way through an error"


@pytest.mark.usefixtures("machine")
def test_buffers_grow_and_are_used_again() -> None:
    cuda = Cuda(0)
    buffer, pinned = Buffer(cuda), PinnedBuffer(cuda)
    first = buffer.reserve(100)
    assert buffer.reserve(10) == first
    buffer.reserve(200)
    assert buffer.size == 200
    array = pinned.array((2, 3), np.dtype(np.int64))
    array[...] = 7
    assert pinned.array((6,), np.dtype(np.int64)).tolist() == [7] * 6
    for one in (buffer, pinned):
        one.release()
        one.release()
        assert one.size == 0


def test_a_crash_of_tensorrt_is_a_reason_and_no_crash(machine: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_job: dict[str, Any]) -> dict[str, Any]:
        raise EngineError("TensorRT crashed with signal 11")

    monkeypatch.setattr(_flavours, "run_worker", crash)
    assert check_device(Device("tensorrt")) == "TensorRT crashed with signal 11"
    with pytest.raises(DeviceError, match="crashed with signal 11"):
        Client(small_bundle().path, device="tensorrt")


def test_auto_takes_engines_at_hand_and_builds_none(machine: GpuMachine, bundle: Bundle) -> None:
    assert open_backend(bundle, "auto").device == Device("cpu")
    assert machine.builds == []
    open_backend(bundle, "tensorrt").close()
    assert machine.builds == ["predict.onnx", "explain.onnx"]
    assert open_backend(bundle, "auto").device == Device("tensorrt")
    assert len(machine.builds) == 2


def test_without_tensorrt_the_extras_are_named(machine: GpuMachine) -> None:
    machine.flavours = ()
    assert "pip install 'bcos-sdk[trt]'" in str(check_device(Device("tensorrt")))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("tf32", [False, True])
def test_coarser_products_are_asked_for_and_certified_as_such(bundle: Bundle, tf32: bool) -> None:
    with Client(bundle.path, device="tensorrt", tf32=tf32) as client:
        (result,) = client.explain(random_pixels(1))
    completeness = result.explanations[0].completeness
    assert (completeness.precision, completeness.tolerance) == (("tf32", 1e-3) if tf32 else ("fp32", 1e-5))
    with Client(bundle.path, device="cpu", tf32=tf32) as client:
        (result,) = client.explain(random_pixels(1))
    assert result.explanations[0].completeness.precision == "fp32", "a CPU multiplies in full precision"


@pytest.mark.usefixtures("machine")
def test_half_precision_has_engines_of_its_own(tmp_path: Path, bundle: Bundle) -> None:
    half = open_bundle(copy_of(small_bundle(precision="fp16"), tmp_path / "half"))
    keys = [key_for_gpu(one, one.explain_graph, "tensorrt", 0, tf32=False) for one in (bundle, half)]
    assert [key.precision for key in keys] == ["fp32", "fp16"]
    with Client(half.path, device="tensorrt", tf32=True) as client:
        (result,) = client.explain(random_pixels(1))
    assert result.explanations[0].completeness.precision == "fp16"


def test_auto_leaves_engines_alone_that_others_built(machine: GpuMachine, bundle: Bundle, tmp_path: Path) -> None:
    """They came with the bundle and are code; a device by name is the order to run them."""
    open_backend(bundle, "tensorrt").close()
    cached = tmp_path / "cache" / "engines"
    bundle.engines.mkdir()
    for file in [*cached.glob("*.plan"), *cached.glob("*.json")]:
        file.rename(bundle.engines / file.name)
    assert open_backend(bundle, "auto").device == Device("tensorrt"), "built here, wherever it lies"
    shutil.rmtree(cached / "built-here")
    assert open_backend(bundle, "auto").device == Device("cpu")
    open_backend(bundle, "tensorrt").close()
    assert len(machine.builds) == 2


@pytest.mark.parametrize("failure", ["memory", "refusal"])
def test_auto_goes_on_where_the_gpu_fails_while_running(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    open_backend(bundle, "tensorrt").close()
    if failure == "memory":
        machine.cuda.room = 100
    else:
        monkeypatch.setattr(FakeContext, "execute_async_v3", lambda _self, _stream: False)
    assert open_backend(bundle, "auto").device == Device("cpu")


def test_a_broken_gpu_does_not_hide_its_own_error(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        return (700,)

    backend = open_backend(bundle, "tensorrt")
    for function in ("cudaStreamSynchronize", "cudaSetDevice", "cudaFree", "cudaFreeHost", "cudaStreamDestroy"):
        monkeypatch.setattr(machine.cuda, function, broken)
    with pytest.raises(InferenceError, match="CUDA error 700"):
        backend.predict(images(1))
    backend.close()


def test_nothing_of_tensorrt_goes_to_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    """Its own logger prints there, where results go; asked here of the real one."""
    trt = pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    words = words_of(trt)
    assert words_of(trt) is words
    builder = trt.Builder(words)
    network = builder.create_network(0)
    assert builder.build_serialized_network(network, builder.create_builder_config()) is None
    assert "it does not say why" not in words.complaint
    assert capfd.readouterr().out == ""
