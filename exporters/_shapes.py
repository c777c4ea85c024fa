"""Shapes of every value of a program, by running it on tensors without data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from bcos_sdk.exporters._program import Program

__all__ = ["infer_shapes"]

_BATCH, _TARGETS = 2, 3
_ROWS = _BATCH  # one target per image


def infer_shapes(program: Program) -> None:
    """Set `meta["val"]` of every node. The batch, the number of targets and that of rows are stand-ins."""
    image, *rest = program.inputs
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        constants = {name: fake.from_tensor(value) for name, value in program.constants.items()}
        sample = tuple(image.meta["val"].shape[1:])
        dtype = image.meta["val"].dtype
        values: dict[fx.Node, Any] = {image: torch.empty(_BATCH, *sample, dtype=dtype)}
        for targets in rest:
            shape = (_ROWS,) if program.by_rows else (_BATCH, _TARGETS)
            values[targets] = torch.empty(shape, dtype=torch.int64)
        for node in program.graph.nodes:
            if node.op == "get_attr":
                values[node] = constants[node.target]
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
    for node, value in values.items():
        if node.op != "get_attr" and isinstance(value, (Tensor, tuple, list)):
            node.meta["val"] = value
