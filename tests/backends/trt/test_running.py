"""The TensorRT runtime on a simulated GPU: buffers, streams, profiles, cache and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bundles import MAX_BATCH, SIZE, copy_of, cpu_backend, cropped, random_pixels, small_bundle
from support.fake_gpu import FakeContext, FakeEngine, Status, fake_plan
from support.gpu_machine import GpuMachine, uninstall, use_worker

from bcos_sdk import Client
from bcos_sdk.backends import Device, TensorSpec, check_device, open_backend
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.tensorrt import (
    TENSORRT,
    Buffer,
    Cuda,
    Engine,
    EngineGraph,
    PinnedBuffer,
    Profile,
    choose_profile,
    key_for_gpu,
    native_logger,
    new_recorder,
    obtain_engine,
    scratch_size,
)
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InferenceError, OutOfMemoryError
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


def test_a_client_returns_the_same_results_as_on_the_cpu(machine: GpuMachine, bundle: Bundle) -> None:
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


def test_an_engine_that_reads_an_input_on_the_host_is_refused(machine: GpuMachine, bundle: Bundle) -> None:
    """TensorRT would read an address of the GPU on the CPU."""
    machine.trt.on_host = {"targets"}
    with pytest.raises(EngineError, match=r"explain\.onnx reads or writes targets on the host"):
        open_backend(bundle, "tensorrt")


def test_memory_is_allocated_once_and_freed(machine: GpuMachine, bundle: Bundle) -> None:
    backend = open_backend(bundle, "tensorrt")
    backend.explain(images(MAX_BATCH), np.full((MAX_BATCH, 1), -1), weights=True)
    made = machine.cuda.allocations
    for count in (1, 3, MAX_BATCH, 2):
        backend.explain(images(count), np.full((count, 1), -1), weights=True)
    assert machine.cuda.allocations == made, "smaller batches must reuse the buffers of larger ones"
    assert (machine.trt.contexts, len(machine.cuda.streams)) == (2, 6), "one context and three streams per graph"
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}
    assert machine.cuda.streams == machine.cuda.events == {}


def test_reused_buffers_do_not_change_earlier_results(machine: GpuMachine, bundle: Bundle) -> None:
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


def test_batches_larger_than_the_profile_run_in_parts(machine: GpuMachine, bundle: Bundle) -> None:
    count = 2 * MAX_BATCH + 1
    targets = np.arange(2 * count).reshape(count, 2) % 7
    got = open_backend(bundle, "tensorrt").explain(images(count), targets, weights=False)
    want = cpu_backend(bundle).explain(images(count), targets, weights=False)
    np.testing.assert_allclose(got.contributions, want.contributions, rtol=1e-4, atol=1e-6)
    assert [run["encoded"][0] for _, run in machine.trt.runs][-3:] == [MAX_BATCH, MAX_BATCH, 1]


@pytest.mark.usefixtures("machine")
def test_more_targets_than_the_profile_accepts_are_an_error(bundle: Bundle) -> None:
    with pytest.raises(InferenceError, match=r"has no profile for .*targets"):
        open_backend(bundle, "tensorrt").explain(images(1), np.zeros((1, MAX_BATCH + 1), np.int64), weights=False)


def test_the_profile_is_chosen_by_the_batch(machine: GpuMachine, bundle: Bundle) -> None:
    wide = bundle.input_shapes(bundle.explain_graph)
    one = {name: (shapes[0], shapes[0], (1, *shapes[2][1:])) for name, shapes in wide.items()}
    graph = explain_graph(bundle, [wide, one])
    outputs: dict[str, TensorSpec] = {}
    for count in (1, 3, 1):
        graph.run({"image": images(count), "targets": np.zeros((count, 1), np.int64)}, outputs)
    assert [profile for profile, _ in machine.trt.runs] == [1, 0, 1]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(4, 9)), min_size=1, max_size=4), st.integers(1, 10))
def test_the_chosen_profile_is_the_tightest_that_accepts_the_batch(ranges: list[tuple[int, int]], batch: int) -> None:
    profiles: list[Profile] = [{"image": ((low, 6), (high, 6))} for low, high in ranges]
    place = choose_profile(profiles, {"image": (batch, 6)})
    fitting = [high for low, high in ranges if low <= batch <= high]
    assert (place is None) == (not fitting)
    if place is not None:
        assert ranges[place][1] == min(fitting)
        assert ranges[place][0] <= batch


def test_the_second_gpu_gets_its_own_engine(machine: GpuMachine, bundle: Bundle) -> None:
    open_backend(bundle, "tensorrt:1").close()
    assert set(machine.cuda.device) == {0, 1}, "the GPU of the caller is selected again"
    assert machine.cuda.current == 0
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
    assert "cannot load the engine of predict.onnx: the plan has no magic tag; building it again" in caplog.text
    assert "TensorRT did not load it" in caplog.text


def test_auto_does_not_rebuild_a_plan_that_tensorrt_does_not_load(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_backend(bundle, "tensorrt").close()
    load = machine.trt._load
    monkeypatch.setattr(machine.trt, "_load", lambda _plan: load(b"not a plan"))
    assert open_backend(bundle, "auto").device == Device(CPU)
    assert machine.builds == ["predict.onnx", "explain.onnx"]


@pytest.mark.usefixtures("machine")
def test_a_plan_that_tensorrt_never_loads_is_an_error(bundle: Bundle) -> None:
    record = obtain_engine(
        bundle, bundle.predict_graph, [key_for_gpu(bundle, bundle.predict_graph, "tensorrt", 0, tf32=False)], 0
    ).record
    with pytest.raises(EngineError, match=r"cannot load the engine of predict\.onnx: the plan has no magic tag"):
        EngineGraph(Engine(b"not a plan", record), Cuda(0), "predict.onnx")


def test_out_of_memory_can_be_retried(machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend(bundle, "tensorrt")
    with monkeypatch.context() as patch:
        patch.setattr(machine.cuda, "cudaMalloc", lambda _size: (Status.cudaErrorMemoryAllocation, None))
        with pytest.raises(OutOfMemoryError, match="cudaErrorMemoryAllocation") as caught:
            backend.explain(images(MAX_BATCH), np.full((MAX_BATCH, 2), -1), weights=False)
    assert caught.value.retryable
    backend.explain(images(MAX_BATCH), np.full((MAX_BATCH, 2), -1), weights=False)
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}, "memory leaked after an error"


def test_an_error_is_not_taken_for_an_earlier_lack_of_memory(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each later error would run the batch again, in halves."""
    backend = open_backend(bundle, "tensorrt")
    codes = machine.trt.ErrorCodeTRT
    for code, kind in ((codes.FAILED_ALLOCATION, OutOfMemoryError), (codes.INTERNAL_ERROR, InferenceError)):

        def fails(self: FakeContext, _stream: int, code: Any = code) -> bool:
            machine.trt.runtime.error_recorder.report_error(code, "a reason")
            return False

        monkeypatch.setattr(FakeContext, "execute_async_v3", fails)
        with pytest.raises(InferenceError, match="a reason") as caught:
            backend.explain(images(1), np.array([[0]]), weights=False)
        assert type(caught.value) is kind


@pytest.mark.usefixtures("machine")
def test_buffers_grow_and_are_reused() -> None:
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


def test_a_crash_of_tensorrt_is_reported(machine: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_job: dict[str, Any]) -> dict[str, Any]:
        raise EngineError("TensorRT crashed with signal 11")

    use_worker(monkeypatch, crash)
    assert check_device(Device(TENSORRT)) == "TensorRT crashed with signal 11"
    with pytest.raises(DeviceUnavailableError, match="crashed with signal 11"):
        Client(small_bundle().path, device="tensorrt")


def test_auto_uses_existing_engines_and_builds_none(machine: GpuMachine, bundle: Bundle) -> None:
    assert open_backend(bundle, "auto").device == Device(CPU)
    assert machine.builds == []
    open_backend(bundle, "tensorrt").close()
    assert machine.builds == ["predict.onnx", "explain.onnx"]
    assert open_backend(bundle, "auto").device == Device(TENSORRT)
    assert len(machine.builds) == 2


@pytest.mark.usefixtures("machine")
def test_without_tensorrt_the_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall(monkeypatch, "tensorrt")
    assert "pip install 'bcos-sdk[trt]'" in str(check_device(Device(TENSORRT)))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("tf32", [False, True])
def test_tf32_is_used_and_certified_on_request(bundle: Bundle, tf32: bool) -> None:
    with Client(bundle.path, device="tensorrt", tf32=tf32) as client:
        (result,) = client.explain(random_pixels(1))
    completeness = result.explanations[0].completeness
    assert (completeness.precision, completeness.tolerance) == (("tf32", 1e-3) if tf32 else ("fp32", 1e-5))
    with Client(bundle.path, device="cpu", tf32=tf32) as client:
        (result,) = client.explain(random_pixels(1))
    assert result.explanations[0].completeness.precision == "fp32", "a CPU does not use TF32"


@pytest.mark.usefixtures("machine")
def test_fp16_has_separate_engines(tmp_path: Path, bundle: Bundle) -> None:
    half = open_bundle(copy_of(small_bundle(precision="fp16"), tmp_path / "half"))
    keys = [key_for_gpu(one, one.explain_graph, "tensorrt", 0, tf32=False) for one in (bundle, half)]
    assert [key.precision for key in keys] == ["fp32", "fp16"]
    with Client(half.path, device="tensorrt", tf32=True) as client:
        (result,) = client.explain(random_pixels(1))
    assert result.explanations[0].completeness.precision == "fp16"


def test_engines_of_others_run_only_if_they_are_trusted(
    machine: GpuMachine, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines that came with a bundle are code. They run only if the user says so."""
    open_backend(bundle, "tensorrt").close()
    cached = tmp_path / "cache" / "engines"
    bundle.engines.mkdir()
    for file in [*cached.glob("*.plan"), *cached.glob("*.json")]:
        file.rename(bundle.engines / file.name)
    assert open_backend(bundle, "auto").device == Device(TENSORRT), "engines that were built here run from any folder"
    monkeypatch.setenv("BCOS_SDK_CONFIG", str(tmp_path / "another user"))
    assert open_backend(bundle, "auto").device == Device(CPU)
    assert open_backend(bundle, "auto", trust_engines=True).device == Device(TENSORRT)
    with Client(bundle.path, device="tensorrt", trust_engines=True) as client:
        client.warmup()
    assert len(machine.builds) == 2
    open_backend(bundle, "tensorrt").close()
    assert len(machine.builds) == 4, "without trust, own engines are built"


@pytest.mark.parametrize("failure", ["memory", "refusal"])
def test_auto_skips_a_gpu_that_fails_while_running(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    open_backend(bundle, "tensorrt").close()
    if failure == "memory":
        machine.cuda.room = 100  # enough to load the graphs, but not to run them
    else:
        monkeypatch.setattr(FakeContext, "execute_async_v3", lambda _self, _stream: False)
    assert open_backend(bundle, "auto").device == Device(CPU)


def test_closing_after_a_fatal_error_raises_nothing(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        return (700,)

    backend = open_backend(bundle, "tensorrt")
    frees = ("cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaEventDestroy")
    for function in ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaSetDevice", *frees):
        monkeypatch.setattr(machine.cuda, function, broken)
    with pytest.raises(InferenceError, match="CUDA error 700"):
        backend.predict(images(1))
    backend.close()


def test_tensorrt_prints_nothing_to_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    """Its own logger would. Tested with the real TensorRT."""
    trt = pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    logger, recorder = native_logger(trt), new_recorder(trt)
    assert native_logger(trt) is logger
    assert recorder.last_error == "TensorRT gave no reason"
    builder = trt.Builder(logger)
    builder.error_recorder = recorder
    network = builder.create_network(0)
    assert builder.build_serialized_network(network, builder.create_builder_config()) is None
    assert "output" in recorder.last_error.lower(), "the network has none"
    assert recorder.num_errors() == len(recorder.codes) > 0
    assert isinstance(recorder.get_error_code(0), trt.ErrorCodeTRT)
    assert not recorder.out_of_memory()
    recorder.clear()
    assert recorder.num_errors() == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("selected", [0, 1])
def test_the_gpu_of_the_caller_stays_selected(machine: GpuMachine, bundle: Bundle, selected: int) -> None:
    machine.cuda.current = selected
    backend = open_backend(bundle, "tensorrt:0")
    assert machine.cuda.current == selected
    backend.predict(images(1))
    assert machine.cuda.current == selected
    backend.close()
    assert machine.cuda.current == selected


def test_out_of_memory_while_loading_is_no_reason_to_build_again(machine: GpuMachine, bundle: Bundle) -> None:
    open_backend(bundle, "tensorrt").close()
    machine.trt.full = True
    with pytest.raises(OutOfMemoryError, match=r"cannot load the engine of predict\.onnx: Requested amount") as caught:
        open_backend(bundle, "tensorrt")
    assert "Free memory of the GPU" in str(caught.value)
    assert machine.builds == ["predict.onnx", "explain.onnx"]
    assert open_backend(bundle, "auto").device == Device(CPU)
    machine.trt.full = False
    open_backend(bundle, "tensorrt").close()
    assert len(machine.builds) == 2


@pytest.mark.usefixtures("machine")
def test_a_failure_to_plan_the_memory_is_an_error(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT reports 0 bytes on an error. The engine must not run with too little memory then."""
    backend = open_backend(bundle, "tensorrt")
    monkeypatch.setattr(FakeContext, "update_device_memory_size_for_shapes", lambda _self: 0)
    with pytest.raises(InferenceError, match="cannot plan the memory of predict"):
        backend.predict(images(1))


def test_a_profile_may_need_no_memory_although_another_does(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image with one target has a profile of its own, and 0 bytes are no error there."""
    needed = FakeContext.update_device_memory_size_for_shapes
    of_shapes = lambda self: 0 if self.profile == 0 else needed(self)  # noqa: E731
    monkeypatch.setattr(FakeContext, "update_device_memory_size_for_shapes", of_shapes)
    monkeypatch.setattr(FakeEngine, "get_device_memory_size_for_profile_v2", lambda _self, place: place << 20)
    backend = open_backend(bundle, "tensorrt")
    for count in (1, 3, 1):
        backend.explain(images(count), np.zeros((count, 1), np.int64), weights=False)
    assert [profile for profile, _ in machine.trt.runs][-3:] == [0, 1, 0]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", ["pixels", "logits"])
def test_an_address_that_tensorrt_refuses_is_an_error(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Otherwise the run would read or write what an earlier run has bound."""
    backend = open_backend(bundle, "tensorrt")
    monkeypatch.setattr(FakeContext, "set_tensor_address", lambda _self, tensor, _address: tensor != name)
    with pytest.raises(InferenceError, match=rf"does not accept the address 0x\w+ for {name} of predict\.onnx: "):
        backend.predict(images(1))


@pytest.mark.parametrize(
    ("for_shapes", "for_profile", "size"), [(0, 0, 256), (0, 1, None), (1, 1, 256), (1000, 4000, 1000)]
)
def test_zero_bytes_are_an_error_unless_the_profile_needs_none(
    for_shapes: int, for_profile: int, size: int | None
) -> None:
    assert scratch_size(for_shapes, for_profile) == size


def test_opening_a_bundle_asks_each_flavour_once(machine: GpuMachine, bundle: Bundle) -> None:
    """The process that tries the GPU also reports the version. Each process costs the start of Python and TensorRT."""
    open_backend(bundle, "tensorrt").close()
    assert [job["task"] for job in machine.jobs] == ["probe", "build", "build"]
    machine.jobs.clear()
    open_backend(bundle, "auto").close()
    assert machine.jobs == []
