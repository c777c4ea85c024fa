"""Common subexpressions: the same operator on the same inputs is computed once.

A block's first convolution and its shortcut read the same input, so their patch norms share a sum of squares.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from bcos_sdk.exporters.program import Program

__all__ = ["share_values"]


def share_values(program: Program) -> int:
    """Replace repeated computations and equal anonymous constants by the first one. Return the number replaced."""
    seen: dict[Any, fx.Node] = {}
    shared = 0
    for node in list(program.graph.nodes):
        if node.op == "get_attr" and node.meta.get("anonymous"):
            key = _contents(program.value_of(node))
        elif node.op == "call_function":
            key = (node.target, _hashable(node.args), _hashable(node.kwargs))
        else:
            continue
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            program.graph.erase_node(node)
            shared += 1
    return shared


def _contents(value: Tensor) -> Any:
    """The contents of an anonymous constant, such as a window of ones. Parameters keep their names."""
    return value.dtype, value.shape, tuple(value.flatten().tolist())


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in sorted(value.items()))
    # In Python 1 == 1.0 == True, but an operator may treat them differently.
    return value if isinstance(value, fx.Node) else (type(value), value)
