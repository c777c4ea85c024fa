"""Equal operator on equal inputs = equal value: compute it once.

A block's first convolution and its shortcut read the same input, so their patch norms begin alike.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from bcos_sdk.exporters._program import Program

__all__ = ["share_values"]


def share_values(program: Program) -> int:
    """Returns how many values, constants among them, took another's place."""
    seen: dict[Any, fx.Node] = {}
    shared = 0
    for node in list(program.graph.nodes):
        if node.op == "get_attr" and node.meta.get("anonymous"):
            key = _contents(program.value_of(node))
        elif node.op == "call_function":
            key = (node.target, _frozen(node.args), _frozen(node.kwargs))
        else:
            continue
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            program.graph.erase_node(node)
            shared += 1
    return shared


def _contents(value: Tensor) -> Any:
    """Windows of ones and the like are equal without being the same. Parameters are not compared: each has a name."""
    return value.dtype, value.shape, tuple(value.flatten().tolist())


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in sorted(value.items()))
    # 1 == 1.0 == True, but an operator may treat them differently.
    return value if isinstance(value, fx.Node) else (type(value), value)
