"""Rewrite the many operators of aten to the few that transpose rules, passes and ONNX emission handle."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.operators import REWRITES, Trait, has_trait
from bcos_sdk.exporters.program import Program, bind, fold_constants, path_of

__all__ = ["canonicalise"]

aten = torch.ops.aten


def canonicalise(program: Program) -> None:
    """Replace in-place operators, fold constants, then apply the rewrite of each operator that has one.

    An operator without an entry stays unchanged. The transposed pass or the emission then raises an error for it.
    """
    for node in list(program.graph.nodes):
        if node.op == "call_function" and _is_in_place(node):
            _replace_in_place(program, node)
    fold_constants(program)
    for node in list(program.graph.nodes):
        rewrite = REWRITES.get(node.target) if node.op == "call_function" else None
        if rewrite is not None:
            rewrite(program, node)
    program.clean()


def _is_in_place(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _replace_in_place(program: Program, node: fx.Node) -> None:
    """x.op_() → y = x.op(), and every later use of x reads y. Refuse it if x may share memory with another value."""
    operator: Any = node.target
    changed = bind(node).self
    plain = getattr(aten, operator.overloadpacket.__name__.removesuffix("_"), None)
    others = [user for user in changed.users if user is not node]
    if plain is None or changed.op != "call_function" or any(map(_may_alias, [changed, *others])):
        raise CaptureError(
            f"operator {operator} in module '{path_of(node)}' changes a tensor in place that may share its memory with "
            "another tensor",
            source=path_of(node),
            hint="Use the operator without the trailing underscore.",
        )
    later = set(itertools.dropwhile(lambda one: one is not node, list(program.graph.nodes)))
    new = program.replace(node, getattr(plain, operator._overloadname), *node.args, **node.kwargs)
    changed.replace_all_uses_with(new, delete_user_cb=lambda user: user in later and user is not new)


def _may_alias(node: fx.Node) -> bool:
    """Whether the value may share its memory with another."""
    schema = getattr(node.target, "_schema", None)
    return has_trait(node, Trait.ALIASES) or (schema is not None and any(one.alias_info for one in schema.returns))
