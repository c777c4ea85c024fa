"""Σ x² = ‖x‖²: one pass over x in place of two, for runtimes that have a kernel for the norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters._program import Program, bind

__all__ = ["join_norms"]

aten = torch.ops.aten


def join_norms(program: Program) -> int:
    """For programs by rows, which are for such runtimes; the squares are of few numbers then."""
    joined = 0
    for node in (
        list(program.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)) if program.by_rows else ()
    ):
        a = bind(node)
        source = _squared(a.self)
        if source is None or len(a.self.users) != 1:
            continue
        norm = program.insert(node, aten.linalg_vector_norm.default, source, 2, a.dim, a.keepdim)
        program.replace(node, aten.square.default, norm)
        joined += 1
    program.clean()
    return joined


def _squared(value: fx.Node) -> Any:
    """x, where the value is x²."""
    if value.target is aten.square.default:
        return value.args[0]
    if value.target is aten.pow.Tensor_Scalar:
        return value.args[0] if value.args[1] == 2 else None
    is_square = value.target is aten.mul.Tensor and value.args[0] is value.args[1]
    return value.args[0] if is_square else None
