"""(x · a) · b = x · (a·b) and x / a = x · (1/a), for constants a and b: one product in place of several."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters._program import Program, is_constant, is_floating, path_of

__all__ = ["constant_scale", "merge_scales"]

aten = torch.ops.aten


def merge_scales(program: Program) -> int:
    merged = 0
    for node in list(program.graph.nodes):
        outer = constant_scale(program, node)
        if outer is None:
            continue
        source, factor = outer
        inner = constant_scale(program, source)
        if inner is not None and len(source.users) == 1:
            source, factor = inner[0], inner[1] * factor
        elif node.target is aten.mul.Tensor:
            continue
        operand: Any = program.constant(path_of(node), factor) if factor.ndim else factor.item()
        program.replace(node, aten.mul.Tensor, source, operand)
        merged += 1
    program.clean()
    return merged


def constant_scale(program: Program, node: fx.Node) -> tuple[fx.Node, Tensor] | None:
    """x and a, where the node is x · a or x / a with a constant a."""
    if node.target not in (aten.mul.Tensor, aten.div.Tensor) or not is_floating(node):
        return None
    left, right = node.args
    if node.target is aten.mul.Tensor and _value(program, left) is not None:
        left, right = right, left
    factor = _value(program, right)
    if factor is None or not isinstance(left, fx.Node) or is_constant(left):
        return None
    return left, factor if node.target is aten.mul.Tensor else 1 / factor


def _value(program: Program, operand: Any) -> Tensor | None:
    if isinstance(operand, (int, float)):
        return torch.tensor(operand, dtype=torch.float64)
    return program.value_of(operand) if is_constant(operand) else None
