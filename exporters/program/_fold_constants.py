"""f(constants) = constant: normalised weights, position tables and scales of batch norms are computed at export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.program._program import Program

__all__ = ["fold_constants"]

_MOVES = frozenset(
    {
        *(
            "alias",
            "clone",
            "contiguous",
            "detach",
            "expand",
            "flatten",
            "lift_fresh_copy",
            "permute",
            "repeat",
            "reshape",
        ),
        *("select", "slice", "squeeze", "to", "transpose", "unflatten", "unsqueeze", "view"),
    }
)
"""Operators that only move or repeat elements: their result is still called after the parameter."""


def fold_constants(program: Program) -> int:
    """Evaluate every node that reads constants only. Return the number of constants that replaced nodes."""
    values: dict[fx.Node, Any] = {}
    origins: dict[fx.Node, set[str]] = {}
    changed: dict[fx.Node, str] = {}  # the last operator that gave other values than those of the origin
    folded = 0
    for node in list(program.graph.nodes):
        if node.op == "get_attr":
            values[node] = program.constants[node.target]
            origins[node] = {node.meta["path"]}
            changed[node] = ""
        elif node.op == "call_function" and all(used in values for used in node.all_input_nodes):
            arguments = fx.map_arg((node.args, node.kwargs), lambda used: values[used])
            with torch.no_grad():
                values[node] = node.target(*arguments[0], **arguments[1])
            origins[node] = set().union(*(origins[used] for used in node.all_input_nodes))
            before = next((changed[used] for used in node.all_input_nodes if changed[used]), "")
            name = str(node.target).split(".")[1] if "." in str(node.target) else ""
            changed[node] = before if name in _MOVES else name
    for node, value in values.items():
        if node.op == "call_function" and isinstance(value, Tensor):
            outside = [user for user in node.users if user not in values]
            if outside:
                folded += 1
                has_one = len(origins[node]) == 1
                name = next(iter(origins[node])) if has_one else node.meta["path"]
                constant = program.constant(name, value.contiguous())
                if has_one and changed[node]:
                    constant.meta["bias_source"] = f"{name}.{changed[node]}"
                for user in outside:
                    user.replace_input_with(node, constant)
    program.clean()
    return folded
