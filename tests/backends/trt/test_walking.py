"""`support.walking` finds parsers that differ, unknown layers, and shapes and types that were not declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper
from support.explaining import relative_error
from support.tiny_onnx import write_onnx
from support.walking import Parsed, execute, parse
from support.walking_layers import RULES
from torch import Tensor

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")


def run(graph: Path, x: Tensor) -> Tensor:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0])


def transposed_convolution(path: Path, **sizes: Any) -> Path:
    weight = np.random.default_rng(0).standard_normal((3, 2, 3, 3), dtype=np.float32)
    node = helper.make_node("ConvTranspose", ["x", "weight"], ["y"], name="grow", strides=[2, 2], **sizes)
    return write_onnx(path, [node], x=(3, 4, 5), y=(2, 8, 10), weights={"weight": weight})


def test_a_difference_between_the_parsers_is_found(tmp_path: Path) -> None:
    """`output_shape` implies a total padding of 1. TensorRT cuts the last row and column, ONNX Runtime the first."""
    graph = transposed_convolution(tmp_path / "implied.onnx", output_shape=[8, 10])
    parsed, x = parse(graph), torch.randn(2, 3, 4, 5)
    ((kind, layer),) = parsed.layers
    assert (kind, tuple(layer.pre_padding), tuple(layer.post_padding)) == ("Deconvolution", (0, 0), (1, 1))
    assert relative_error(execute(parsed, {"x": x})["y"], run(graph, x)) > 0.1


def test_explicit_padding_agrees(tmp_path: Path) -> None:
    graph = transposed_convolution(tmp_path / "explicit.onnx", pads=[1, 1, 1, 1], output_padding=[1, 1])
    x = torch.randn(2, 3, 4, 5)
    assert relative_error(execute(parse(graph), {"x": x})["y"], run(graph, x)) < 1e-6


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    """No member of a family has one, but exports can."""
    graph = write_onnx(
        tmp_path / "same.onnx", [helper.make_node("Identity", ["x"], ["y"], name="same")], x=(3,), y=(3,)
    )
    parsed, x = parse(graph), torch.rand(2, 3)
    assert [kind for kind, _ in parsed.layers] == ["Identity"]
    assert torch.equal(execute(parsed, {"x": x})["y"], x)


def test_an_unknown_layer_is_named(tmp_path: Path) -> None:
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], name="running_total")
    graph = write_onnx(tmp_path / "sums.onnx", [node], x=(3,), y=(3,), weights={"axis": np.array(1)})
    with pytest.raises(AssertionError, match="type Cumulative: 'running_total'"):
        execute(parse(graph), {"x": torch.rand(2, 3)})


@pytest.fixture
def square_root(tmp_path: Path) -> Parsed:
    return parse(
        write_onnx(tmp_path / "root.onnx", [helper.make_node("Sqrt", ["x"], ["y"], name="root")], x=(3,), y=(3,))
    )


def gives(value: Tensor) -> Any:
    return lambda layer, inputs: value


def test_an_undeclared_shape_is_found_at_its_layer(square_root: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "Unary", gives(torch.rand(2, 4)))
    with pytest.raises(AssertionError, match=r"Unary 'root' declares y as \(-1, 3\), but it is \(2, 4\)"):
        execute(square_root, {"x": torch.rand(2, 3)})


def test_an_undeclared_type_is_found_at_its_layer(square_root: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "Unary", gives(torch.rand(2, 3).half()))
    with pytest.raises(AssertionError, match=r"Unary 'root' declares y as FLOAT, but it is torch\.float16"):
        execute(square_root, {"x": torch.rand(2, 3)})


def test_a_graph_that_tensorrt_does_not_parse_is_named(tmp_path: Path) -> None:
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="odd")
    with pytest.raises(AssertionError, match=r"does not parse odd\.onnx: .*NoSuchOperator"):
        parse(write_onnx(tmp_path / "odd.onnx", [node], x=(3,), y=(3,)))
