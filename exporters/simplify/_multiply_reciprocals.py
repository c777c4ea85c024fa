"""a / d = a · (1/d), where d has one channel and a has many: divide once per location, not once per channel."""

from __future__ import annotations

from math import prod

import torch
from torch import fx

from bcos_sdk.exporters._program import Program, path_of, sample_shape

__all__ = ["multiply_reciprocals"]

aten = torch.ops.aten


def multiply_reciprocals(program: Program) -> int:
    rewritten = 0
    for node in list(program.graph.nodes):
        if node.target is not aten.div.Tensor:
            continue
        numerator, denominator = node.args
        if not isinstance(denominator, fx.Node) or denominator.op == "get_attr":
            continue
        if prod(sample_shape(denominator)) >= prod(sample_shape(node)):
            continue
        with program.graph.inserting_before(node):
            inverse = program.graph.call_function(aten.reciprocal.default, (denominator,))
        inverse.meta = {**denominator.meta, "path": path_of(node)}
        program.replace(node, aten.mul.Tensor, numerator, inverse)
        rewritten += 1
    return rewritten
