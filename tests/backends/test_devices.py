"""The choice of a device, and the error if it does not work; tested without a GPU."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support import gpu_machine
from support.bundles import random_pixels, small_bundle

from bcos_sdk import Client, _extras
from bcos_sdk.backends import (
    RUNTIMES,
    Arrays,
    Device,
    Driver,
    Gpu,
    Graph,
    TensorSpec,
    inference_error,
    open_backend,
    open_graph,
    parse_device,
)
from bcos_sdk.backends.onnxruntime import CPU, CUDA, RECORD_ASSIGNMENT
from bcos_sdk.backends.openvino import OPENVINO
from bcos_sdk.backends.tensorrt import TENSORRT
from bcos_sdk.errors import DeviceUnavailableError, InferenceError, OutOfMemoryError, SelfTestError

A, B = Gpu(name="Ada", capability="8.9"), Gpu(name="Blackwell", capability="12.0")
PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]

UseDriver = Callable[[Driver], None]


@pytest.fixture
def gpu_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ONNX Runtime that was built with CUDA, and a TensorRT that is installed."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: PROVIDERS)
    gpu_machine.install_empty(monkeypatch, "tensorrt")


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", Device(CPU)),
        ("cuda", Device(CUDA, 0)),
        ("cuda:1", Device(CUDA, 1)),
        ("tensorrt:2", Device(TENSORRT, 2)),
        ("openvino", Device(OPENVINO)),
        ("auto", None),
    ],
)
def test_devices_are_parsed(text: str, device: Device | None) -> None:
    assert parse_device(text) == device


@pytest.mark.parametrize("text", ["npu", "cpu:0", "openvino:0", "cuda:", "cuda:x", "tensorrt 1", ""])
def test_other_names_are_refused_and_the_hint_lists_the_devices(text: str) -> None:
    with pytest.raises(DeviceUnavailableError, match=r"there is no device") as caught:
        parse_device(text)
    hint = 'Devices are "auto", "cpu", "openvino", "cuda", "cuda:1", "tensorrt", "tensorrt:1" and so on.'
    assert caught.value.hint == hint


def test_the_name_of_a_gpu_has_its_index() -> None:
    named = {Device(CPU): "cpu", Device(OPENVINO): "openvino", Device(CUDA): "cuda:0"}
    named[Device(TENSORRT, 1)] = "tensorrt:1"
    assert [str(device) for device in named] == list(named.values())


def test_auto_prefers_gpus_and_falls_back_to_the_cpu() -> None:
    assert [runtime.name for runtime in RUNTIMES] == ["tensorrt", "cuda", "openvino", "cpu"]


def test_auto_self_tests_on_opening_if_another_device_remains() -> None:
    *candidates, fallback = RUNTIMES
    assert all(runtime.self_tests_on_open(by_name=False) for runtime in candidates)
    assert not fallback.self_tests_on_open(by_name=False)
    by_name = [runtime.name for runtime in RUNTIMES if runtime.self_tests_on_open(by_name=True)]
    assert by_name == ["tensorrt", "cuda"]


def test_an_onnxruntime_without_cuda_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    versions = {"onnxruntime": "1.31"}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError
        return versions[name]

    monkeypatch.setattr(_extras, "version", version)
    problem = Device(CUDA).problem()
    assert problem is not None
    assert "this ONNX Runtime has no CUDA" in problem
    assert "bcos-sdk[gpu]" in problem
    versions["onnxruntime-gpu"] = "1.31"
    both = Device(CUDA).problem()
    assert both is not None
    assert "both installed and have overwritten each other" in both


@pytest.mark.usefixtures("gpu_packages")
@pytest.mark.parametrize("name", ["cuda", "tensorrt"])
def test_a_missing_driver_is_reported(use_driver: UseDriver, name: str) -> None:
    use_driver(Driver(problem="no NVIDIA driver is installed"))
    with pytest.raises(
        DeviceUnavailableError, match=rf"device {name}:0 does not work here: no NVIDIA driver"
    ) as caught:
        Client(small_bundle().path, device=name)
    assert caught.value.code == "device_unavailable"
    assert 'device="cpu"' in str(caught.value)


@pytest.mark.usefixtures("gpu_packages")
def test_an_index_without_a_gpu_is_reported(use_driver: UseDriver) -> None:
    use_driver(Driver(gpus=(A, B)))
    assert Device(CUDA, 1).problem() is None
    assert Device(CUDA, 2).problem() == "there are 2 GPUs, numbered from 0"


def test_the_cpu_needs_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_machine.use_driver(monkeypatch, lambda: pytest.fail("the driver was probed"))
    assert Device(CPU).problem() is None


@pytest.mark.usefixtures("gpu_packages")
def test_auto_logs_the_device_and_why_others_were_skipped(
    monkeypatch: pytest.MonkeyPatch, use_driver: UseDriver, caplog: pytest.LogCaptureFixture
) -> None:
    gpu_machine.uninstall(monkeypatch, "openvino")
    use_driver(Driver(problem="the NVIDIA driver reports no GPU"))
    with caplog.at_level(logging.INFO, "bcos_sdk"), Client(small_bundle().path, device="auto") as client:
        assert client.device == "cpu"
    assert "device auto: cpu (skipped: " in caplog.text
    assert "device cuda:0 does not work here: the NVIDIA driver reports no GPU" in caplog.text
    assert "pip install 'bcos-sdk[openvino]'" in caplog.text


def cuda_by_cpu(monkeypatch: pytest.MonkeyPatch, open_graph: Any = CPU.open_graph) -> None:
    """Let the CPU compute the graphs of "cuda"; TensorRT is not installed."""
    monkeypatch.setattr(TENSORRT, "problem", lambda index: "it is not installed")
    monkeypatch.setattr(CUDA, "problem", lambda index: None)
    monkeypatch.setattr(OPENVINO, "problem", lambda index: "it is not installed")
    monkeypatch.setattr(CUDA, "open_graph", open_graph)


def test_auto_uses_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cuda_by_cpu(monkeypatch)
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device(CUDA)
    assert "device auto: cuda:0" in caplog.text


class Wrong(Graph):
    """A graph whose W(x) is 10 % too large."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def run(self, feed: Mapping[str, Any], outputs: Mapping[str, TensorSpec]) -> Arrays:
        results = self._graph.run(feed, outputs)
        return {name: value * 1.1 if name == "weights" else value for name, value in results.items()}

    def stop(self) -> None:
        self._graph.stop()

    def close(self) -> None:
        self._graph.close()


def test_auto_skips_a_gpu_that_fails_the_self_test(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cuda_by_cpu(monkeypatch, lambda *arguments: Wrong(CPU.open_graph(*arguments)))
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device(CPU)
    assert "self-test failed on cuda:0: weights differ from the golden record by 1.0e-01" in caplog.text
    with pytest.raises(SelfTestError, match="self-test failed on cuda:0: weights differ from the golden record"):
        open_backend(small_bundle(), "cuda")


def test_auto_skips_a_gpu_whose_session_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a driver but without cuDNN only the session fails. The ONNX Runtime of this test has no CUDA: the same."""
    for runtime in (TENSORRT, CUDA):
        monkeypatch.setattr(runtime, "problem", lambda index: None)
    monkeypatch.setattr(OPENVINO, "problem", lambda index: "it is not installed")
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device(CPU)
    assert "device auto: cpu (skipped: " in caplog.text
    assert "device cuda:0 does not work here" in caplog.text
    with pytest.raises(DeviceUnavailableError, match="device cuda:0 does not work here"):
        open_backend(small_bundle(), "cuda")
    with pytest.raises(DeviceUnavailableError, match="device tensorrt:0 does not work here"):
        open_backend(small_bundle(), "tensorrt")


def test_tensorrt_needs_the_shapes_of_a_plain_onnx_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TENSORRT, "problem", lambda index: None)
    with pytest.raises(DeviceUnavailableError, match="TensorRT needs the shapes of the inputs"):
        open_graph(small_bundle().predict_graph, Device(TENSORRT))


class Node:
    def __init__(self, op_type: str, name: str) -> None:
        self.op_type, self.name = op_type, name


class Part:
    def __init__(self, ep_name: str, *nodes: Node) -> None:
        self.ep_name, self._nodes = ep_name, nodes

    def get_nodes(self) -> tuple[Node, ...]:
        return self._nodes


class Session:
    """What a session on a GPU would report about itself."""

    def __init__(self, providers: list[str], *parts: Part) -> None:
        self._providers, self._parts = providers, parts

    def get_providers(self) -> list[str]:
        return self._providers

    def get_provider_graph_assignment_info(self) -> tuple[Part, ...]:
        return self._parts


def test_a_session_with_another_provider_is_refused() -> None:
    with pytest.raises(DeviceUnavailableError, match="uses CPUExecutionProvider instead"):
        CUDA.check_session(Session(["CPUExecutionProvider"]), 0)


def test_a_session_that_computes_on_the_cpu_is_refused() -> None:
    fine = Part("CUDAExecutionProvider", Node("Conv", "conv1"))
    shapes = Part("CPUExecutionProvider", Node("Shape", "shape"), Node("Concat", "shapes"))
    work = Part("CPUExecutionProvider", Node("ConvTranspose", "explain/layer1.0/ConvTranspose"))
    CUDA.check_session(Session(PROVIDERS, fine, shapes), 0)
    with pytest.raises(DeviceUnavailableError, match=r"on the CPU: ConvTranspose explain/layer1.0/ConvTranspose"):
        CUDA.check_session(Session(PROVIDERS, fine, shapes, work), 0)


def test_only_shapes_are_computed_on_the_cpu() -> None:
    nodes = [Node("Shape", "a"), Node("Concat", "b"), Node("Mul", "c"), Node("Softmax", "d")]
    with pytest.raises(DeviceUnavailableError, match=r"these nodes on the CPU: Mul c, Softmax d\n"):
        CUDA.check_session(Session(PROVIDERS, Part("CPUExecutionProvider", *nodes)), 0)


def test_a_real_session_reports_the_provider_of_each_node() -> None:
    """The stand-ins above have the names that ONNX Runtime uses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(RECORD_ASSIGNMENT, "1")
    session = onnxruntime.InferenceSession(
        small_bundle().explain_graph, options, providers=["CPUExecutionProvider"], enable_fallback=False
    )
    parts = session.get_provider_graph_assignment_info()
    operators = {node.op_type for part in parts for node in part.get_nodes()}
    assert {part.ep_name for part in parts} == {"CPUExecutionProvider"}
    assert {"Conv", "ConvTranspose", "MatMul"} <= operators


def test_the_cpu_has_no_options() -> None:
    assert (CPU.provider, CPU.provider_options(0)) == ("CPUExecutionProvider", {})


@pytest.mark.parametrize("tf32", [False, True])
def test_cuda_options_name_the_gpu_and_the_precision(tf32: bool) -> None:
    options = CUDA.provider_options(1, tf32=tf32)
    assert CUDA.provider == "CUDAExecutionProvider"
    assert (options["device_id"], options["use_tf32"]) == ("1", "1" if tf32 else "0")


@pytest.mark.parametrize(
    "text",
    [
        "Failed to allocate memory for requested buffer of size 123",
        "CUDA failure 2: out of memory ; GPU=0",
        "std::bad_alloc",
        "bad allocation",
        "BFCArena::AllocateRawInternal Available memory of 0 is smaller; Failed to allocate",
    ],
)
def test_out_of_memory_is_recognised(text: str) -> None:
    error = inference_error(RuntimeError(text), 8)
    assert isinstance(error, OutOfMemoryError)
    assert error.retryable
    assert "batch of 8" in str(error)
    assert "max_batch" in str(error)


def test_other_errors_keep_their_message() -> None:
    assert isinstance(inference_error(MemoryError(), 1), OutOfMemoryError)
    error = inference_error(RuntimeError("Non-zero status code returned while running Conv"), 2)
    assert type(error) is InferenceError
    assert "Conv" in str(error)


def test_without_onnxruntime_the_error_names_the_extra(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["onnxruntime"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnxruntime" else found(name, *rest)
import bcos_sdk._extras
bcos_sdk._extras.find_spec = importlib.util.find_spec
from bcos_sdk import Client, _extras
try:
    Client({str(small_bundle().path)!r}, device="cpu")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Running a model needs onnxruntime" in done.stdout
    assert "bcos-sdk[cpu]" in done.stdout


@pytest.mark.gpu
def test_cuda_and_cpu_agree() -> None:
    images = random_pixels(7)
    with Client(small_bundle().path, device="cuda") as gpu, Client(small_bundle().path, device="cpu") as cpu:
        assert gpu.device == "cuda:0"
        pairs = zip(gpu.explain(images, top_k=2, weights=True), cpu.explain(images, top_k=2, weights=True), strict=True)
        for one, other in pairs:
            for left, right in zip(one.explanations, other.explanations, strict=True):
                assert left.target.index == right.target.index
                assert left.completeness.passed
                scale = float(np.abs(right.weights).max())
                np.testing.assert_allclose(left.weights, right.weights, atol=1e-3 * scale)
