"""f(constants) = constant: normalised weights, position tables and scales of batch norms are computed at export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.program._program import Program

__all__ = ["fold_constants"]


def fold_constants(program: Program) -> int:
    """Evaluate every node that reads constants only. Return the number of constants that replaced nodes."""
    values: dict[fx.Node, Any] = {}
    origins: dict[fx.Node, set[str]] = {}
    folded = 0
    for node in list(program.graph.nodes):
        if node.op == "get_attr":
            values[node] = program.constants[node.target]
            origins[node] = {node.meta["path"]}
        elif node.op == "call_function" and all(used in values for used in node.all_input_nodes):
            arguments = fx.map_arg((node.args, node.kwargs), lambda used: values[used])
            with torch.no_grad():
                values[node] = node.target(*arguments[0], **arguments[1])
            origins[node] = set().union(*(origins[used] for used in node.all_input_nodes))
    for node, value in values.items():
        if node.op == "call_function" and isinstance(value, Tensor):
            outside = [user for user in node.users if user not in values]
            if outside:
                folded += 1
                name = origins[node].pop() if len(origins[node]) == 1 else node.meta["path"]
                constant = program.constant(name, value.contiguous())
                for user in outside:
                    user.replace_input_with(node, constant)
    program.clean()
    return folded
