"""OpenVINO as a device: how it is chosen, refused and closed, and its errors. Results: test_openvino_families."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from onnx import helper
from support.bundles import (
    LABELS,
    SIZE,
    copy_of,
    cropped,
    encoded_batch,
    explain_by_autograd,
    random_pixels,
    sign_again,
    small_bundle,
)
from support.gpu_machine import uninstall
from support.tiny_onnx import write_onnx

from bcos_sdk import Client
from bcos_sdk.backends import Arrays, Device, check_device, explain_specs, open_backend
from bcos_sdk.backends.onnxruntime import CPU, CUDA
from bcos_sdk.backends.openvino import OPENVINO, OpenvinoGraph, _graph
from bcos_sdk.backends.tensorrt import TENSORRT
from bcos_sdk.bundle import open_bundle
from bcos_sdk.errors import (
    BundleError,
    ClientClosedError,
    DeviceUnavailableError,
    InferenceError,
    OutOfMemoryError,
    SelfTestError,
)

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")
DEVICE = Device(OPENVINO)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` can use OpenVINO and the CPU."""
    for runtime in (TENSORRT, CUDA):
        monkeypatch.setattr(runtime, "problem", lambda index: "there is no GPU")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_client_explains_as_autograd_does(precision: Any) -> None:
    pixels = random_pixels(3)
    with Client(small_bundle(precision=precision).path, device="openvino", tf32=True) as client:
        assert client.device == "openvino"
        results = client.explain(pixels, targets=["fox", "lynx vs fox"], weights=True)
    fox, difference = torch.eye(len(LABELS))[2], torch.eye(len(LABELS))[1] - torch.eye(len(LABELS))[2]
    for image, result in zip(pixels, results, strict=True):
        for explanation, coefficients in zip(result.explanations, (fox, difference), strict=True):
            value, weights = explain_by_autograd(cropped(image), coefficients)
            error = np.linalg.norm(explanation.weights - weights.numpy()) / weights.norm()
            assert error < (1e-5 if precision == "fp32" else 1e-2)
            assert explanation.completeness.passed
            assert explanation.completeness.precision == precision, "TF32 is for GPUs only"
            assert explanation.completeness.logit == pytest.approx(value, rel=1e-2, abs=1e-2)


def test_it_computes_in_float32_with_the_given_threads() -> None:
    graph = OpenvinoGraph(small_bundle().explain_graph, threads=1)
    graph.run({"image": encoded_batch(1), "targets": np.zeros((1, 1), np.int64)}, {})
    (request,) = graph._requests.values()
    compiled = request.get_compiled_model()
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert compiled.get_property("NUM_STREAMS") == 1


def test_runs_change_neither_inputs_nor_earlier_results() -> None:
    graph = OpenvinoGraph(small_bundle().explain_graph, threads=None)
    kept = []
    for seed, (count, targets) in enumerate([(2, 1), (2, 1), (4, 2), (2, 1)]):
        specs = explain_specs(small_bundle().manifest, count, (count, targets), weights=True)
        feed: Arrays = {"image": encoded_batch(count, seed), "targets": np.zeros((count, targets), np.int64)}
        got = graph.run(feed, specs)
        assert {name: (one.shape, one.dtype.name) for name, one in got.items()} == {
            name: (spec.shape, spec.dtype) for name, spec in specs.items()
        }
        assert all(array.flags.owndata for array in got.values())
        np.testing.assert_array_equal(feed["image"], encoded_batch(count, seed))
        kept.append((got, {name: array.copy() for name, array in got.items()}))
    for got, copy in kept:
        for name, array in got.items():
            np.testing.assert_array_equal(array, copy[name], err_msg="a later run overwrote an earlier result")


def test_w_of_x_is_returned_on_request_only() -> None:
    backend = open_backend(small_bundle(), "openvino")
    assert backend.explain(encoded_batch(1), np.array([[0]]), weights=False).weights is None
    weights = backend.explain(encoded_batch(1), np.array([[0]]), weights=True).weights
    assert weights is not None
    assert weights.shape == (1, 1, 6, *SIZE)


def test_a_closed_backend_refuses_to_run() -> None:
    backend = open_backend(small_bundle(), "openvino")
    backend.predict(encoded_batch(2))
    backend.close()
    backend.close()
    with pytest.raises(ClientClosedError):
        backend.predict(encoded_batch(1))


@pytest.mark.parametrize(
    "image", [np.zeros((2, 6, 1, 1), np.float32), np.zeros((2, 6, *SIZE)), np.zeros((2, *SIZE), np.float32)]
)
def test_inputs_of_another_shape_or_dtype_are_refused(image: npt.NDArray[Any]) -> None:
    """OpenVINO itself would accept them and compute wrong results."""
    graph = OpenvinoGraph(small_bundle().predict_graph, threads=None)
    with pytest.raises(InferenceError, match="failed on a batch of 2: image is float"):
        graph.run({"image": image}, {})


def test_a_damaged_graph_is_a_bundle_error() -> None:
    with pytest.raises(BundleError, match=r"OpenVINO cannot load explain_rows\.onnx") as caught:
        OpenvinoGraph(b"\x08\x0a garbage", "explain_rows.onnx")
    assert "Exception from" not in str(caught.value)
    assert "Export the model again" in str(caught.value)


def test_an_operator_that_openvino_lacks_is_named(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "explain.onnx", [helper.make_node("Det", ["x"], ["y"])], x=[2, 2], y=[])
    with pytest.raises(
        DeviceUnavailableError, match=r"device openvino does not work here: .* explain\.onnx: .*Det"
    ) as caught:
        OpenvinoGraph(path, threads=None)
    assert 'device="cpu"' in str(caught.value)


def test_a_graph_that_does_not_compile_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_graph, "_options", lambda _threads: {"NUM_STREAMS": "many"})
    graph = OpenvinoGraph(small_bundle().predict_graph, threads=None)
    with pytest.raises(DeviceUnavailableError, match=r"OpenVINO cannot compile predict\.onnx"):
        graph.run({"image": encoded_batch(1)}, {})


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("Failed to allocate 205520896 bytes of memory")])
def test_too_little_memory_to_load_a_graph(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_model: Any) -> None:
        raise error

    monkeypatch.setattr(_graph, "rewrite", fail)
    graph = OpenvinoGraph(small_bundle().predict_graph, threads=None)
    with pytest.raises(OutOfMemoryError, match=r"predict\.onnx does not fit"):
        graph.run({"image": encoded_batch(1)}, {})


@pytest.mark.parametrize("threads", [1, 2])
def test_after_running_out_of_memory_fewer_targets_run(threads: int) -> None:
    """OpenVINO's own request would keep the memory and fail on fewer targets as well."""
    program = f"""
import resource
from pathlib import Path
import numpy as np
from bcos_sdk.backends import TensorSpec
from bcos_sdk.backends.openvino import OpenvinoGraph
from bcos_sdk.errors import OutOfMemoryError

graph = OpenvinoGraph(Path({str(small_bundle().explain_rows_graph)!r}), threads={threads})
image = np.zeros((1, 6, {SIZE[0]}, {SIZE[1]}), np.float32)
few, many = (
    ({{"image": image, "targets": np.zeros(n, np.int64)}}, {{"logits": TensorSpec((1, 7), "float32")}})
    for n in (2, 20000)
)
before = graph.run(*few)["logits"]
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (128 << 20), resource.RLIM_INFINITY))
try:
    graph.run(*many)
except OutOfMemoryError as error:
    after = graph.run(*few)["logits"]
    print(error.message, error.retryable, np.array_equal(before, after))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "a batch of 20000 does not fit into the memory of the device True True\n", done.stderr


@pytest.mark.usefixtures("no_gpu")
def test_auto_prefers_it_to_the_cpu_and_logs_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        backend = open_backend(small_bundle(), "auto")
    assert backend.device == DEVICE
    skipped = [f"device {name} does not work here: there is no GPU" for name in ("tensorrt:0", "cuda:0")]
    assert f"device auto: openvino (skipped: {'; '.join(skipped)})" in caplog.text


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("fault", ["wrong weights", "no operator", "broken graph", "no memory"])
def test_auto_falls_back_to_the_cpu(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The self-test on opening finds what is wrong with the explain graph."""
    run, errors = OpenvinoGraph.run, {"no operator": DeviceUnavailableError, "broken graph": BundleError}

    def faulty(self: OpenvinoGraph, feed: Any, outputs: Any) -> Any:
        results = run(self, feed, outputs)
        if "weights" in results:
            if fault != "wrong weights":
                raise errors.get(fault, OutOfMemoryError)(fault)
            results["weights"] *= 1.1
        return results

    monkeypatch.setattr(OpenvinoGraph, "run", faulty)
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        assert open_backend(small_bundle(), "auto").device == Device(CPU)
    assert "device auto: cpu (skipped: " in caplog.text
    assert ("weights differ from the golden record" if fault == "wrong weights" else fault) in caplog.text


def test_by_name_each_graph_is_loaded_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    open_graph = OPENVINO.open_graph

    def watched(graph: Path, *arguments: Any) -> Any:
        loaded.append(graph.name)
        return open_graph(graph, *arguments)

    monkeypatch.setattr(OPENVINO, "open_graph", watched)
    backend = open_backend(small_bundle(), "openvino")
    assert loaded == []
    backend.predict(encoded_batch(1))
    assert loaded == ["predict.onnx"]
    backend.explain(encoded_batch(1), np.array([[0]]), weights=False)
    assert loaded == ["predict.onnx", "explain_rows.onnx"]


def test_changed_weights_fail_the_self_test(tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    weights = np.fromfile(folder / "weights.bin", np.float32)
    (weights * 1.01).astype(np.float32).tofile(folder / "weights.bin")
    sign_again(folder)
    with pytest.raises(SelfTestError, match="self-test failed on openvino: logits differ from the golden record"):
        open_backend(open_bundle(folder), "openvino").predict(encoded_batch(1))


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall(monkeypatch, "openvino")
    with pytest.raises(DeviceUnavailableError, match=r"OpenVINO is not installed; pip install 'bcos-sdk\[openvino\]'"):
        Client(small_bundle().path, device="openvino")
    assert "bcos-sdk[openvino]" in str(check_device(DEVICE))


def test_a_package_that_cannot_be_imported_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise ImportError("libtbb.so.12: cannot open shared object file")

    monkeypatch.setattr(_graph, "import_openvino", fail)
    assert "OpenVINO cannot be imported: libtbb.so.12" in str(check_device(DEVICE))


def test_the_check_runs_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_device(DEVICE) is None
    open_onnx = OPENVINO.open_onnx
    monkeypatch.setattr(OPENVINO, "open_onnx", lambda _source, index: open_onnx(b"nothing", index))
    assert "cannot load the graph" in str(check_device(DEVICE))


def test_it_needs_no_onnxruntime_and_sends_no_telemetry(photograph: Path, tmp_path: Path) -> None:
    """A plain import of OpenVINO writes an identifier into the home folder and sends a message from a thread."""
    program = f"""
import sys, threading
sys.modules["onnxruntime"] = None
import bcos_sdk._extras
found = bcos_sdk._extras.find_spec
bcos_sdk._extras.find_spec = lambda name, *rest: None if name == "onnxruntime" else found(name, *rest)
from bcos_sdk import Client
for device in ("openvino", "auto"):
    with Client({str(small_bundle().path)!r}, device=device) as client:
        client.explain({str(photograph)!r})
        print(client.device)
print([name for name in sys.modules if name.startswith("openvino_telemetry")])
print([thread.name for thread in threading.enumerate() if "ThreadPool" in thread.name])
"""
    environment = {"HOME": str(tmp_path / "home"), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    (tmp_path / "home").mkdir()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines() == ["openvino", "openvino", "[]", "[]"], done.stderr
    assert not (tmp_path / "home" / "intel").exists()
