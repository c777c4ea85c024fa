"""Which device is used, and what is said when one cannot be: decided here without a GPU."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.bundles import cpu_backend, random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.backends import Device, _devices, _open, open_backend
from bcos_sdk.backends._devices import parse_device, problem_of
from bcos_sdk.backends._driver import Driver, Gpu
from bcos_sdk.backends._failures import translate_error
from bcos_sdk.backends.onnxruntime import _sessions
from bcos_sdk.backends.onnxruntime._sessions import check_session, foreign_nodes, provider_options
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import ExplainOutputs
from bcos_sdk.errors import DeviceError, InferenceError, OutOfMemoryError, SelfTestError

A, B = Gpu(name="Ada", capability="8.9"), Gpu(name="Blackwell", capability="12.0")
ALL = ["CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def gpu_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ONNX Runtime had been built with CUDA, and TensorRT were installed."""
    monkeypatch.setattr(_devices, "providers_of_runtime", lambda: ALL)
    monkeypatch.setattr(_devices, "installed_flavours", lambda: ["tensorrt"])


@pytest.fixture
def no_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_devices, "is_installed", lambda _module: False)


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    monkeypatch.setattr(_devices, "probe_driver", lambda: driver)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", Device("cpu")),
        ("cuda", Device("cuda", 0)),
        ("cuda:1", Device("cuda", 1)),
        ("tensorrt:2", Device("tensorrt", 2)),
        ("openvino", Device("openvino")),
        ("auto", None),
    ],
)
def test_names(text: str, device: Device | None) -> None:
    assert parse_device(text) == device


@pytest.mark.parametrize("text", ["npu", "cpu:0", "openvino:0", "cuda:", "cuda:x", "tensorrt 1", ""])
def test_other_names_are_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(DeviceError, match=r"there is no device") as caught:
        parse_device(text)
    assert '"openvino"' in str(caught.value)


def test_devices_are_named_in_full() -> None:
    named = {Device("cpu"): "cpu", Device("openvino"): "openvino", Device("cuda"): "cuda:0"}
    named[Device("tensorrt", 1)] = "tensorrt:1"
    assert [str(device) for device in named] == list(named.values())


def test_a_runtime_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_devices, "providers_of_runtime", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(_devices, "installed_version", {"onnxruntime": "1.31"}.get)
    problem = problem_of(Device("cuda"))
    assert problem is not None
    assert "this ONNX Runtime has no CUDA" in problem
    assert "bcos-sdk[gpu]" in problem
    monkeypatch.setattr(_devices, "installed_version", lambda name: "1.31")
    both = problem_of(Device("cuda"))
    assert both is not None
    assert "both installed and have overwritten each other" in both


@pytest.mark.usefixtures("gpu_runtime")
@pytest.mark.parametrize("kind", ["cuda", "tensorrt"])
def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    with_driver(monkeypatch, Driver(problem="no NVIDIA driver is installed"))
    with pytest.raises(DeviceError, match=rf"device {kind}:0 does not work here: no NVIDIA driver") as caught:
        Client(small_bundle().path, device=kind)
    assert caught.value.code == "device_unavailable"
    assert 'device="cpu"' in str(caught.value)


@pytest.mark.usefixtures("gpu_runtime")
def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, Driver(gpus=(A, B)))
    assert problem_of(Device("cuda", 1)) is None
    assert problem_of(Device("cuda", 2)) == "there are 2 GPUs, numbered from 0"


def test_the_cpu_needs_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_devices, "probe_driver", lambda: pytest.fail("asked"))
    assert problem_of(Device("cpu")) is None


@pytest.mark.usefixtures("no_openvino")
def test_auto_says_what_it_chose_and_why(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_devices, "providers_of_runtime", lambda: ALL)
    with_driver(monkeypatch, Driver(problem="the NVIDIA driver sees no GPU"))
    with caplog.at_level(logging.INFO, "bcos_sdk"), Client(small_bundle().path, device="auto") as client:
        assert client.device == "cpu"
    assert "device auto: cpu, since" in caplog.text
    assert "device cuda:0 does not work here: the NVIDIA driver sees no GPU" in caplog.text
    assert "pip install 'bcos-sdk[openvino]'" in caplog.text


def all_but_tensorrt(device: Device) -> str | None:
    return "it is not installed" if device.kind == "tensorrt" else None


def test_auto_takes_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_open, "problem_of", all_but_tensorrt)
    monkeypatch.setattr(_open, "GraphBackend", Stand)
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device("cuda")
    assert "device auto: cuda:0" in caplog.text


def test_auto_does_not_take_a_gpu_that_computes_wrongly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Stand):
        def explain(self, images: Any, targets: Any, *, weights: bool) -> ExplainOutputs:
            outputs = super().explain(images, targets, weights=weights)
            assert outputs.weights is not None
            return dataclasses.replace(outputs, weights=outputs.weights * (1.0 if self.device.kind == "cpu" else 1.1))

    monkeypatch.setattr(_open, "problem_of", all_but_tensorrt)
    monkeypatch.setattr(_open, "GraphBackend", Wrong)
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device("cpu")
    assert "weights of size" in caplog.text
    with pytest.raises(SelfTestError, match="on cuda:0"):
        open_backend(small_bundle(), "cuda")


def test_auto_goes_on_where_the_driver_works_and_the_session_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver, but no cuDNN: only the session shows it. This ONNX Runtime has no CUDA and so refuses as well."""
    monkeypatch.setattr(_open, "problem_of", lambda device: "not here" if device.kind == "openvino" else None)
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device("cpu")
    assert "device auto: cpu, since" in caplog.text
    assert "device cuda:0 does not work here" in caplog.text
    with pytest.raises(DeviceError, match="device cuda:0 does not work here"):
        open_backend(small_bundle(), "cuda")
    with pytest.raises(DeviceError, match="device tensorrt:0 does not work here"):
        open_backend(small_bundle(), "tensorrt")


class Stand:
    """A GPU, as far as a CPU can stand in for one."""

    precision = "fp32"

    def __init__(self, bundle: Bundle, device: Device, _open_graph: Any, *, tf32: bool) -> None:
        self.device = device
        self._cpu = cpu_backend(bundle)

    def predict(self, images: Any) -> Any:
        return self._cpu.predict(images)

    def explain(self, images: Any, targets: Any, *, weights: bool) -> ExplainOutputs:
        return self._cpu.explain(images, targets, weights=weights)

    def close(self) -> None:
        self._cpu.close()


class Node:
    def __init__(self, op_type: str, name: str) -> None:
        self.op_type, self.name = op_type, name


class Part:
    def __init__(self, ep_name: str, *nodes: Node) -> None:
        self.ep_name, self._nodes = ep_name, nodes

    def get_nodes(self) -> tuple[Node, ...]:
        return self._nodes


class Session:
    """What a session on a GPU would say of itself."""

    def __init__(self, providers: list[str], *parts: Part) -> None:
        self._providers, self._parts = providers, parts

    def get_providers(self) -> list[str]:
        return self._providers

    def get_provider_graph_assignment_info(self) -> tuple[Part, ...]:
        return self._parts


def test_a_session_that_went_elsewhere_is_refused() -> None:
    with pytest.raises(DeviceError, match="went to CPUExecutionProvider instead"):
        check_session(Session(["CPUExecutionProvider"]), Device("cuda"))


def test_a_session_that_leaves_work_to_the_cpu_is_refused() -> None:
    fine = Part("CUDAExecutionProvider", Node("Conv", "conv1"))
    sizes = Part("CPUExecutionProvider", Node("Shape", "shape"), Node("Concat", "sizes"))
    work = Part("CPUExecutionProvider", Node("ConvTranspose", "explain/layer1.0/ConvTranspose"))
    check_session(Session(ALL, fine, sizes), Device("cuda"))
    with pytest.raises(DeviceError, match=r"on the CPU: ConvTranspose explain/layer1.0/ConvTranspose"):
        check_session(Session(ALL, fine, sizes, work), Device("cuda"))


def test_what_may_stay_on_the_cpu() -> None:
    assert foreign_nodes([("Shape", "a"), ("Concat", "b"), ("Mul", "c"), ("Softmax", "d")]) == ["Mul c", "Softmax d"]


def test_a_real_session_answers_these_questions() -> None:
    """The names used above are those of ONNX Runtime: it is asked here where its nodes run."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(_sessions._RECORD_ASSIGNMENT, "1")
    session = onnxruntime.InferenceSession(
        small_bundle().explain_graph, options, providers=["CPUExecutionProvider"], enable_fallback=False
    )
    parts = session.get_provider_graph_assignment_info()
    operators = {node.op_type for part in parts for node in part.get_nodes()}
    assert {part.ep_name for part in parts} == {"CPUExecutionProvider"}
    assert {"Conv", "ConvTranspose", "MatMul"} <= operators


def test_cpu_options() -> None:
    assert provider_options(Device("cpu")) == [("CPUExecutionProvider", {})]


@pytest.mark.parametrize("tf32", [False, True])
def test_cuda_options_ask_for_full_precision_on_the_right_gpu(tf32: bool) -> None:
    ((provider, options),) = provider_options(Device("cuda", 1), tf32=tf32)
    assert provider == "CUDAExecutionProvider"
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
    error = translate_error(RuntimeError(text), 8)
    assert isinstance(error, OutOfMemoryError)
    assert error.retryable
    assert "batch of 8" in str(error)
    assert "max_batch" in str(error)


def test_other_failures_keep_their_text() -> None:
    assert isinstance(translate_error(MemoryError(), 1), OutOfMemoryError)
    error = translate_error(RuntimeError("Non-zero status code returned while running Conv"), 2)
    assert type(error) is InferenceError
    assert "Conv" in str(error)


def test_without_onnxruntime_the_extra_is_named(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["onnxruntime"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnxruntime" else found(name, *rest)
import bcos_sdk._extras
bcos_sdk._extras.find_spec = importlib.util.find_spec
from bcos_sdk import Client
try:
    Client({str(small_bundle().path)!r}, device="cpu")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Running a model needs onnxruntime" in done.stdout
    assert "bcos-sdk[cpu]" in done.stdout


@pytest.mark.gpu
def test_cuda_says_what_the_cpu_says() -> None:
    import numpy as np

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
