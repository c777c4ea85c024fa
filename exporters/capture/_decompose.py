"""Spell operators that the table does not have by operators that it has, with torch's own decompositions.

The decomposition also makes the graph functional: an operator that changes a tensor in place becomes one that returns
a new tensor, and every later use of the memory reads the new one. A graph that needs neither stays unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import decomposition_table
from torch.export import ExportedProgram

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.operators import OPERATORS

__all__ = ["decompose", "decomposed_operators"]

aten = torch.ops.aten

_KEPT = frozenset({aten.detach.default, operator.getitem})
"""Operators that stay. `detach` separates frozen from live values; with its decomposition all of them would go."""

_FURTHER = (
    "_log_softmax",
    "_native_batch_norm_legit",
    "_softmax",
    "addmm",
    "elu",
    "gelu",
    "leaky_relu",
    "native_group_norm",
    "native_layer_norm",
)
"""Operators of torch's core set for which the table has no entry, but torch a decomposition."""


def decompose(exported: ExportedProgram) -> ExportedProgram:
    """The same program without in-place operators, in operators of the table where torch has a decomposition."""
    if not any(_is_foreign(node) for node in exported.graph.nodes):
        return exported
    functional: ExportedProgram = exported.run_decompositions(dict(_table()))
    return functional


def _is_foreign(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target in _KEPT:
        return False
    schema = getattr(node.target, "_schema", None)
    return not _is_captured(node.target) or (schema is not None and bool(schema.is_mutable))


def _is_captured(target: Any) -> bool:
    """Whether the table has an entry for the operator as it occurs in captured graphs."""
    return target in OPERATORS and (OPERATORS[target].batch is not None or OPERATORS[target].rewrite is not None)


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Operator → decomposition, for every operator without an entry."""
    further = {target: rule for target, rule in decomposition_table.items() if _name(target) in _FURTHER}
    table = {**further, **torch.export.default_decompositions(), **OWN}
    return {target: rule for target, rule in table.items() if not _is_captured(target) and target not in _KEPT}


def decomposed_operators() -> frozenset[str]:
    """The names, without overloads, of the operators that are decomposed."""
    return frozenset(map(_name, _table()))


def _name(target: Any) -> str:
    return str(getattr(target, "overloadpacket", target)).rpartition(".")[2]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q kᵀ · scale + mask) v."""
    if dropout_p:
        raise CaptureError(
            f"attention has dropout {dropout_p} in eval mode, so the logits are random",
            hint="Pass dropout_p=0.0 in eval mode.",
        )
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = torch.where(attn_mask, scores, torch.finfo(scores.dtype).min)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1) @ value


def _distances(x1: Tensor, x2: Tensor, p: float = 2.0, _compute_mode: int | None = None) -> Tensor:
    distances: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
    return distances


def _arc_tangent_of_quotient(self: Tensor, other: Tensor) -> Tensor:
    angle = torch.atan(self / other)
    turned = torch.where(self < 0, angle - torch.pi, angle + torch.pi)
    return torch.where(other > 0, angle, torch.where(other == 0, torch.sign(self) * (torch.pi / 2), turned))


OWN: dict[Any, Callable[..., Any]] = {
    aten.atan2.default: _arc_tangent_of_quotient,
    aten.cdist.default: _distances,
    aten.exp2.default: lambda self: torch.pow(2.0, self),
    aten.scaled_dot_product_attention.default: _attention,
}
"""Decompositions of our own, where torch has none or a longer one."""
