"""Shapes and dtypes of a program's values, found by running its operators on tensors without data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from bcos_sdk.contract import Layout
from bcos_sdk.exporters.program._program import Program

__all__ = ["ShapeInference", "infer_shapes"]

# Example values for the sizes that vary. In ROWS each image has one target here, so there are as many rows as images.
_SIZES = {"batch": 2, "targets": 3, "rows": 2}


def infer_shapes(program: Program) -> None:
    """Set `meta["val"]` of every node, with example values for the batch size and the number of targets."""
    shapes = ShapeInference(program)
    for node in program.graph.nodes:
        shapes.infer(node)


class ShapeInference:
    """Infers the values of one program's nodes in order. Nodes may be added to the program in between."""

    def __init__(self, program: Program) -> None:
        self.leading = tuple(_SIZES[axis] for axis in program.layout.axes)
        self._program = program
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._values: dict[fx.Node, Any] = {}

    def infer(self, node: fx.Node) -> None:
        """Infer the value of a node whose inputs were inferred before, and store it in `meta["val"]`."""
        with self._mode:
            if node.op == "placeholder":
                self._values[node] = self._input(node)
            elif node.op == "get_attr":
                self._values[node] = self._mode.from_tensor(self._program.value_of(node))
                return  # the metadata of a constant holds the constant itself
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
                self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        value = self._values.get(node)
        if isinstance(value, (Tensor, tuple, list)):
            node.meta["val"] = value

    def _input(self, node: fx.Node) -> Tensor:
        if node is not self._program.inputs[0]:
            if "sample" in node.meta:
                return torch.empty(*self.leading, *node.meta["sample"], dtype=self._program.inputs[0].meta["val"].dtype)
            return torch.empty(self.leading, dtype=torch.int64)
        image = node.meta["val"]
        return torch.empty(_SIZES[Layout.GRID.axes[0]], *image.shape[1:], dtype=image.dtype)
