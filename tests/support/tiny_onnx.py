"""ONNX files with a few given nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, numpy_helper


def write_onnx(
    path: Path,
    nodes: Sequence[NodeProto],
    *,
    x: Sequence[int],
    y: Sequence[int],
    weights: Mapping[str, npt.NDArray[np.generic]] | None = None,
) -> Path:
    """Write a graph from `x` to `y`, both float32. `x` and `y` are the shapes without the batch axis."""
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *sample])]
        for name, sample in (("x", x), ("y", y))
    )
    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path
