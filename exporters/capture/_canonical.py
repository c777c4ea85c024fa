"""Rewrite the many operators of aten to the few that transpose rules, passes and ONNX emission handle."""

from __future__ import annotations

from torch import fx

from bcos_sdk.exporters.operators import REWRITES
from bcos_sdk.exporters.program import Program, fold_constants

__all__ = ["canonicalise"]


def canonicalise(program: Program) -> None:
    """Fold constants and apply the rewrite of each operator that has one, until nothing changes."""
    before: list[fx.Node] = []
    while before != (nodes := list(program.graph.nodes)):
        before = nodes
        fold_constants(program)
        for node in list(program.graph.nodes):
            rewrite = REWRITES.get(node.target) if node.op == "call_function" else None
            if rewrite is not None:
                rewrite(program, node)
        program.clean()
