"""Find the first layer where a graph differs from its program: compare each inner value with float64."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.contract import rank_target
from bcos_sdk.errors import ParityError
from bcos_sdk.exporters.onnx import WeightsFile, emit
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.passes import layer_of
from bcos_sdk.exporters.program import Program, is_floating
from bcos_sdk.exporters.verify._sessions import open_session, run_session

__all__ = ["with_worst_layer"]

_LIMIT = 1e-4


def with_worst_layer(error: ParityError, program: Program, images: Tensor) -> ParityError:
    """The same error; if a layer exceeds the limit, the hint names it."""
    layer = _worst_layer(program, images)
    where = f" The first layer whose values differ is '{layer}'." if layer else ""
    return ParityError(error.message, hint=f"{error.hint or 'No bundle was written.'}{where}")


def _worst_layer(program: Program, images: Tensor) -> str | None:
    """The first module, in the order of the computation, whose relative error exceeds the limit."""
    targets = torch.full((len(images), 1), rank_target(1))
    inner = {
        f"inner_{number}": node
        for number, node in enumerate(program.graph.nodes)
        if node.op == "call_function" and is_floating(node) and node not in program.results
    }
    truth = _values(program, images.double(), targets)
    measured = _measure(program, inner, images, targets)
    for name, node in inner.items():
        expected = truth[node]
        error = (torch.from_numpy(measured[name]).double().view_as(expected) - expected).norm()
        if not error <= _LIMIT * expected.norm():
            return layer_of(node)
    return None


def _values(program: Program, images: Tensor, targets: Tensor) -> dict[fx.Node, Any]:
    """Every value of the program, computed in float64."""
    inputs = dict(zip(program.inputs, (images, targets), strict=False))
    values: dict[fx.Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = inputs[node]
        elif node.op == "get_attr":
            constant = program.constants[node.target]
            values[node] = constant.double() if constant.is_floating_point() else constant
        elif node.op == "call_function":
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            args = tuple(torch.float64 if argument is torch.float32 else argument for argument in args)
            values[node] = node.target(*args, **kwargs)
    return values


def _measure(program: Program, inner: dict[str, fx.Node], images: Tensor, targets: Tensor) -> dict[str, Any]:
    """The inner values as ONNX Runtime computes them."""
    with tempfile.TemporaryDirectory() as folder:
        with WeightsFile(Path(folder) / "weights.bin") as weights:
            model = emit(program, "inner", weights, SPELLINGS, expose=inner)
        path = Path(folder) / "inner.onnx"
        path.write_bytes(model.SerializeToString())
        return run_session(open_session(path), images.numpy(), targets.numpy(), list(inner))
