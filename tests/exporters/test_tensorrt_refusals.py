"""`find_refusals` finds the operators that TensorRT does not build. Each case is also built with TensorRT itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support.bundles import small_bundle
from torch import Tensor, nn

from bcos_sdk.backends.tensorrt import build_engines, run_worker
from bcos_sdk.errors import EngineError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.onnx import TENSORRT_REFUSES, Refusal, find_refusals

Model = tuple[onnx.NodeProto, dict[str, Any]]

SAMPLE = [4, 8, 4000]


def node(kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> onnx.NodeProto:
    results = ["y", *(f"y{place}" for place in range(1, outputs))]
    return helper.make_node(kind, ["x", *inputs], results, name=f"layer1.conv/{kind}", **attributes)


KERNEL = np.ones((4, 4, 3, 3), np.float32)
REFUSED: dict[str, Model] = {
    "stride and dilation": (node("ConvTranspose", "w", strides=[2, 2], dilations=[2, 2]), {"w": KERNEL}),
    "dilated average": (node("AveragePool", kernel_shape=[2, 2], dilations=[2, 2]), {}),
    "indices": (node("MaxPool", outputs=2, kernel_shape=[2, 2]), {}),
    "non-zero": (node("NonZero"), {}),
    "scatter with a sum": (
        node("ScatterElements", "i", "u", axis=1, reduction="add"),
        {"i": np.zeros((1, 1, 8, 8), np.int64), "u": np.ones((1, 1, 8, 8), np.float32)},
    ),
    "computed axes": (node("ReduceSum", "axes"), {"axes": None}),
    "too many ranks": (node("TopK", "k", outputs=2, axis=3), {"k": np.array([4000])}),
}
FINE: dict[str, Model] = {
    "stride": (node("ConvTranspose", "w", strides=[2, 2], output_padding=[1, 1]), {"w": KERNEL}),
    "dilation": (node("ConvTranspose", "w", dilations=[2, 2]), {"w": KERNEL}),
    "average": (node("AveragePool", kernel_shape=[2, 2]), {}),
    "maximum": (node("MaxPool", kernel_shape=[2, 2]), {}),
    "axes": (node("ReduceSum", "axes"), {"axes": np.array([1])}),
    "ranks": (node("TopK", "k", outputs=2, axis=3), {"k": np.array([4])}),
}


def write(path: Path, model: Model) -> Path:
    operator, constants = model
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *SAMPLE])]
    if "axes" in constants and constants["axes"] is None:
        inputs.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [1]))
    kind = TensorProto.INT64 if operator.op_type == "NonZero" else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items() if value is not None]
    graph = helper.make_graph([operator], "one", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def build(graph: Path) -> dict[str, Any]:
    shapes = [[1, *SAMPLE], [8, *SAMPLE], [8, *SAMPLE]]
    job = {"graph": str(graph), "profiles": [{"x": shapes}], "capabilities": ["8.6"], "tf32": False, "gpu": None}
    return run_worker({"task": "build", "flavour": "tensorrt_rtx", "plan": str(graph.with_suffix(".plan")), **job})


@pytest.mark.parametrize("case", REFUSED)
def test_refused_operators_are_found(tmp_path: Path, case: str) -> None:
    model = REFUSED[case]
    graph = write(tmp_path / "graph.onnx", model)
    (refusal,) = find_refusals(graph)
    assert (refusal.operator, refusal.layer) == (model[0].op_type, "layer1.conv")
    assert str(refusal).startswith(f"{refusal.operator} in layer1.conv: ")
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    with pytest.raises(EngineError):
        build(graph)


@pytest.mark.parametrize("case", FINE)
def test_supported_operators_are_not_reported(tmp_path: Path, case: str) -> None:
    graph = write(tmp_path / "graph.onnx", FINE[case])
    assert find_refusals(graph) == []
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    build(graph)


def test_padding_that_differs_in_tensorrt_is_found(tmp_path: Path) -> None:
    """TensorRT builds these nodes, but computes other values: see tests/backends/trt/test_walking.py."""
    for attributes in ({"output_shape": [16, 16]}, {"auto_pad": "SAME_UPPER"}):
        model = node("ConvTranspose", "w", strides=[2, 2], **attributes), {"w": KERNEL}
        (refusal,) = find_refusals(write(tmp_path / "graph.onnx", model))
        assert "the other side" in refusal.reason


def test_exported_graphs_have_no_refused_operators() -> None:
    assert find_refusals(small_bundle().predict_graph, small_bundle().explain_graph) == []


class Dilated(nn.Module):
    """A convolution with stride and dilation. TensorRT refuses a ConvTranspose with both."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 3, stride=2, dilation=2, padding=1, bias=False)
        self.head = nn.Linear(8, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.conv(x).mean((2, 3)))
        return logits


def test_a_strided_and_dilated_convolution_is_explained_and_built(tmp_path: Path) -> None:
    torch.manual_seed(1)
    bundle = export(Dilated().eval(), tmp_path / "dilated", input_size=(17, 20), max_batch=2)
    assert find_refusals(bundle.explain_graph) == []
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    assert len(build_engines(bundle, compute_capabilities=["8.6", "8.9", "12.0"])) == 2


def test_an_export_logs_refused_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(TENSORRT_REFUSES, "MatMul", lambda _node, _constants: "a made-up reason")
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        export(Dilated().eval(), tmp_path / "dilated", input_size=(17, 20), max_batch=1)
    lines = [record.getMessage() for record in caplog.records]
    assert f"TensorRT cannot build an engine for this bundle: {Refusal('MatMul', 'head', 'a made-up reason')}" in lines
