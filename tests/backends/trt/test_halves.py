"""`support.halves` finds every fp16 value of a parsed network, and those that no product consumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import NodeProto, TensorProto, helper
from support.explaining import relative_error
from support.halves import layers_with_halves, misplaced_halves
from support.tiny_onnx import write_onnx
from support.walking import execute, parse

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")

WEIGHT = np.random.default_rng(0).standard_normal((3, 4, 3, 3), dtype=np.float32)
AXIS = np.array([1])


def node(kind: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def cast(source: str, output: str, to: int) -> NodeProto:
    return node("Cast", source, output, to=to)


# A convolution in fp16, with a weight that is transposed as in explain graphs, divided by a norm.
PRODUCT = [
    cast("x", "half_x", TensorProto.FLOAT16),
    cast("weight", "half_weight", TensorProto.FLOAT16),
    node("Transpose", "half_weight", "turned", perm=[1, 0, 2, 3]),
    node("Conv", "half_x turned", "half_product", pads=[1, 1, 1, 1]),
    cast("half_product", "product", TensorProto.FLOAT),
]
QUOTIENT = node("Div", "product norm", "y")


def graph_of(folder: Path, *norm: NodeProto) -> Path:
    weights = {"weight": WEIGHT, "axis": AXIS}
    return write_onnx(folder / "halves.onnx", [*PRODUCT, *norm, QUOTIENT], x=(3, 5, 6), y=(4, 5, 6), weights=weights)


def test_fp16_in_products_is_accepted(tmp_path: Path) -> None:
    parsed = parse(graph_of(tmp_path, node("ReduceL2", "x axis", "norm")))
    assert misplaced_halves(parsed) == []
    kinds = [kind for kind, _ in layers_with_halves(parsed)]
    assert sorted(kinds) == ["Cast", "Cast", "Cast", "Convolution", "Shuffle"]


def test_a_norm_in_fp16_is_named(tmp_path: Path) -> None:
    norm = node("ReduceSum", "half_x axis", "half_norm"), cast("half_norm", "norm", TensorProto.FLOAT)
    assert misplaced_halves(parse(graph_of(tmp_path, *norm))) == ["Reduce 'half_norm' computes in fp16"]


def test_a_float32_norm_of_a_rounded_value_is_named(tmp_path: Path) -> None:
    moved = node("Transpose", "half_x", "moved", perm=[0, 1, 2, 3])
    norm = moved, cast("moved", "rounded", TensorProto.FLOAT), node("ReduceL2", "rounded axis", "norm")
    (wrong,) = misplaced_halves(parse(graph_of(tmp_path, *norm)))
    assert wrong == "Cast 'rounded' returns a float32 that was rounded to fp16 for no product"


def test_execution_rounds_to_fp16_where_the_graph_does(tmp_path: Path) -> None:
    """ONNX Runtime on the CPU convolves in float32 and removes the casts to fp16 and back."""
    graph = graph_of(tmp_path, node("ReduceL2", "x axis", "norm"))
    x, weight = torch.rand(2, 3, 5, 6), torch.from_numpy(WEIGHT).transpose(0, 1)
    product = F.conv2d(x.half().float(), weight.half().float(), padding=1).half().float()
    wanted = product / x.norm(dim=1, keepdim=True)
    assert relative_error(execute(parse(graph), {"x": x})["y"], wanted) < 1e-6
