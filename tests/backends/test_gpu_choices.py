"""What the GPU devices decide: warnings, TF32, flavours. Each decision is a plain function, so no GPU is needed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import gpu_machine
from support.bundles import random_pixels, small_bundle
from support.fake_gpu import FakeTensorRT
from support.gpu_machine import GpuMachine

from bcos_sdk import Client
from bcos_sdk.backends import Device, Driver, Gpu, Graph, _open, examine_device, open_backend
from bcos_sdk.backends._open import passed_over
from bcos_sdk.backends._probe import PROBE_SPECS, judge, probe_image, probe_model
from bcos_sdk.backends.onnxruntime import CPU, CUDA
from bcos_sdk.backends.openvino import OPENVINO
from bcos_sdk.backends.tensorrt import TENSORRT, choose_flavour, run_worker
from bcos_sdk.bundle import builtin_bundle
from bcos_sdk.errors import DeviceUnavailableError, EngineError, MissingExtraError

UseDriver = Callable[[Driver], None]
L4, T4 = Gpu(name="L4", capability="8.9"), Gpu(name="T4", capability="7.5")


def test_auto_warns_if_it_passes_over_a_gpu(
    monkeypatch: pytest.MonkeyPatch, use_driver: UseDriver, caplog: pytest.LogCaptureFixture
) -> None:
    use_driver(Driver(gpus=(L4,)))
    monkeypatch.setattr(_open, "may_have_gpu", lambda: True)
    gpu_machine.uninstall(monkeypatch, "tensorrt", "tensorrt_rtx", "openvino")
    open_backend(small_bundle(), "auto").close()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    text = warning.getMessage()
    assert text.startswith("device auto: cpu, although there is a GPU (L4): ")
    assert "TensorRT is not installed" in text
    assert "this ONNX Runtime has no CUDA" in text
    assert "pip install 'bcos-sdk[gpu]'" in text
    assert "OpenVINO" not in text, "it is no GPU"


def test_there_is_no_warning_without_a_gpu_or_if_one_is_used() -> None:
    reasons = {Device(TENSORRT): "no engine"}
    assert passed_over(Device(CPU), reasons, []) is None
    assert passed_over(Device(CUDA), reasons, ["L4"]) is None
    assert "no engine" in str(passed_over(Device(OPENVINO), reasons, ["L4"]))


def test_the_probe_is_a_valid_model_and_its_truth_is_that_of_torch() -> None:
    import torch
    from torch.nn import functional as F

    model = onnx.load_from_string(probe_model())
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Conv", "ConvTranspose", "MatMul"]
    w1, w2, w3 = (torch.tensor(onnx.numpy_helper.to_array(one)).double() for one in model.graph.initializer)
    x = torch.tensor(probe_image()).double()
    truth = [F.conv2d(x, w1, padding=1), F.conv_transpose2d(x, w2, None, 2, 1, 1), x @ w3]
    got = CPU.open_onnx(probe_model(), 0).run({"image": probe_image()}, PROBE_SPECS)
    for name, expected in zip(PROBE_SPECS, truth, strict=True):
        np.testing.assert_allclose(got[name], expected.numpy(), atol=1e-5)
    assert examine_device(Device(CPU)) == (None, "fp32")


def test_tensorrt_is_probed_with_an_engine(machine: GpuMachine) -> None:
    assert examine_device(Device(TENSORRT, 1)) == (None, "fp32")
    assert machine.builds == ["model.onnx"]
    assert machine.jobs[-1]["gpu"] == 1


@pytest.mark.parametrize(
    ("precision", "asked", "choices"),
    [("fp32", False, (False,)), ("fp32", True, (True,)), ("fp16", True, (True,)), ("fp16", False, (True, False))],
)
def test_fp16_may_use_tensor_cores(precision: Any, asked: bool, choices: tuple[bool, ...]) -> None:
    assert CUDA.tf32_choices(precision, asked=asked) == choices


class Rounded(Graph):
    """A graph whose float32 outputs have the error of products in TF32, unless TF32 is off and the driver obeys."""

    def __init__(self, graph: Any, error: float) -> None:
        self._graph, self._error = graph, error

    def run(self, feed: Any, outputs: Any) -> Any:
        noise = np.random.default_rng(0)
        results = self._graph.run(feed, outputs)
        for name in {"weights"} & results.keys():
            shape = results[name].shape
            results[name] = results[name] * (1 + self._error * noise.standard_normal(shape)).astype(np.float32)
        return results

    def stop(self) -> None:
        self._graph.stop()

    def close(self) -> None:
        self._graph.close()


def cuda_with(monkeypatch: pytest.MonkeyPatch, error: Callable[[Any], float]) -> list[bool]:
    """Let the CPU compute for "cuda", with a rounding error that depends on the options; return the uses of TF32."""
    opened: list[bool] = []

    def open_graph(graph: Any, bundle: Any, index: int, options: Any) -> Any:
        opened.append(options.tf32)
        return Rounded(CPU.open_graph(graph, bundle, index, options), error(options))

    monkeypatch.setattr(CUDA, "problem", lambda index: None)
    monkeypatch.setattr(CUDA, "open_graph", open_graph)
    return opened


def test_tf32_that_was_not_asked_for_is_named_in_the_results(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cuda_with(monkeypatch, lambda options: 5e-3)
    with Client(small_bundle().path, device="cuda") as client:
        (result,) = client.explain(random_pixels(1))
    completeness = result.explanations[0].completeness
    assert (completeness.precision, completeness.tolerance) == ("tf32", 1e-3)
    assert "cuda:0 rounds products to TF32 although it was not asked to" in caplog.text


def test_float32_that_ran_in_float32_is_certified_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_with(monkeypatch, lambda options: 0)
    with Client(small_bundle().path, device="cuda") as client:
        (result,) = client.explain(random_pixels(1))
    assert result.explanations[0].completeness.precision == "fp32"


def test_fp16_runs_with_tensor_cores_unless_the_self_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    half = small_bundle(precision="fp16")
    opened = cuda_with(monkeypatch, lambda options: 0)
    assert open_backend(half, "cuda").precision == "fp16"
    assert set(opened) == {True}
    opened = cuda_with(monkeypatch, lambda options: 0.5 if options.tf32 else 0)
    assert open_backend(half, "cuda").precision == "fp16"
    assert opened[-1] is False


def test_export_builds_with_rtx_where_only_rtx_is_installed(
    monkeypatch: pytest.MonkeyPatch, use_driver: UseDriver
) -> None:
    use_driver(Driver(gpus=(L4,)))
    gpu_machine.uninstall(monkeypatch, "tensorrt")
    gpu_machine.install_empty(monkeypatch, "tensorrt_rtx")
    assert choose_flavour([], "fp32") == "tensorrt_rtx"
    use_driver(Driver(gpus=(T4,)))
    assert choose_flavour([], "fp16") == "tensorrt_rtx"
    with pytest.raises(MissingExtraError, match="Building engines for this GPU needs tensorrt"):
        choose_flavour([], "fp32")


def test_a_client_does_not_use_rtx_for_float32_on_a_gpu_without_it(
    machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.update(gpus=(T4,))
    gpu_machine.uninstall(monkeypatch, "tensorrt")
    gpu_machine.install_empty(monkeypatch, "tensorrt_rtx")
    with pytest.raises(Exception, match=r"cannot multiply in float32 on compute capability 7\.5; export .* fp16"):
        Client(small_bundle().path, device="tensorrt")
    assert machine.builds == []


@pytest.fixture
def t4_with_rtx(machine: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> GpuMachine:
    """A T4 with TensorRT for RTX only, which has no float32 matrix product there."""
    machine.update(gpus=(T4,))
    gpu_machine.uninstall(monkeypatch, "tensorrt")
    machine.trt = FakeTensorRT(machine.cuda, "tensorrt_rtx")
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", machine.trt)
    gpu_machine.forget()
    return machine


def test_a_gpu_with_fp16_only_is_probed_in_fp16(t4_with_rtx: GpuMachine) -> None:
    assert examine_device(Device(TENSORRT)) == (None, "fp16")
    t4_with_rtx.update(gpus=(L4,))
    assert examine_device(Device(TENSORRT)) == (None, "fp32")


def test_a_model_in_float32_is_refused_there_before_it_is_built(t4_with_rtx: GpuMachine) -> None:
    shape = probe_image().shape
    with pytest.raises(DeviceUnavailableError, match=r"cannot multiply in float32 on compute capability 7\.5"):
        TENSORRT.open_onnx(probe_model(), 0, shapes={"image": (shape, shape, shape)})
    assert t4_with_rtx.builds == []


def test_the_probe_in_fp16_is_a_valid_model() -> None:
    model = onnx.load_from_string(probe_model("fp16"))
    onnx.checker.check_model(model, full_check=True)
    assert {one.data_type for one in model.graph.initializer} == {onnx.TensorProto.FLOAT16}
    outputs = CPU.open_onnx(probe_model("fp16"), 0).run({"image": probe_image()}, PROBE_SPECS)
    assert judge(outputs, "fp16") == (None, "fp16")
    outputs["convolution"] = outputs["convolution"] * np.float32(1.02)
    assert "the error of a convolution is 2e-02" in str(judge(outputs, "fp16").problem)


@pytest.mark.parametrize(("precision", "builds"), [("fp16", True), ("fp32", False)])
def test_tensorrt_for_rtx_builds_the_probe_for_a_t4_in_fp16_only(tmp_path: Path, precision: Any, builds: bool) -> None:
    """With the real TensorRT for RTX, which needs no GPU for it."""
    pytest.importorskip("tensorrt_rtx")
    shape = probe_image().shape
    graph = tmp_path / "probe.onnx"
    graph.write_bytes(probe_model(precision))
    job: dict[str, Any] = {"task": "build", "flavour": "tensorrt_rtx", "capabilities": ["7.5"], "tf32": False}
    job |= {"graph": str(graph), "plan": str(tmp_path / "plan"), "profiles": [{"image": [shape] * 3}], "gpu": None}
    with nullcontext() if builds else pytest.raises(EngineError):
        assert run_worker(job)["size"] > 0


def same_as_the_cpu(device: str, folder: Path, *, tf32: bool) -> None:
    images = random_pixels(7)
    with Client(folder, device=device, tf32=tf32) as gpu, Client(folder, device="cpu") as cpu:
        assert gpu.device == device
        for one, other in zip(gpu.explain(images, top_k=2), cpu.explain(images, top_k=2), strict=True):
            for left, right in zip(one.explanations, other.explanations, strict=True):
                assert left.completeness.passed
                scale = float(np.abs(right.contributions).max())
                far = 1e-3 if left.completeness.precision == "fp32" else 1e-1
                np.testing.assert_allclose(left.contributions, right.contributions, atol=far * scale)


@pytest.mark.parametrize("machine_of", ["simulated", pytest.param("real", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", ["fp16", "tf32", "cuda:1", "a whole trained network"])
def test_cuda_agrees_with_the_cpu(monkeypatch: pytest.MonkeyPatch, machine_of: str, case: str) -> None:
    """On the simulated machine the CPU computes, which shows that the test works."""
    device = "cuda:1" if case == "cuda:1" else "cuda:0"
    if machine_of == "simulated":
        cuda_with(monkeypatch, lambda options: 0)
    elif (problem := Device(CUDA, int(device[-1])).problem()) is not None:
        pytest.skip(problem)
    folder = small_bundle(precision="fp16" if case == "fp16" else "fp32").path
    same_as_the_cpu(device, builtin_bundle() if "network" in case else folder, tf32=case == "tf32")
