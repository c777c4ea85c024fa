"""Spell operators that the table does not have by operators that it has, with torch's own decompositions.

The decomposition also makes the graph functional: an operator that changes a tensor in place becomes one that returns
a new tensor, and every later use of the memory reads the new one. A graph that needs neither stays unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
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
    "grid_sampler_2d",
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


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = torch.einsum("...i,kij,...j->...k", input1, weight, input2)
    return product if bias is None else product + bias


def _average_of_blocks(
    input: Tensor,  # noqa: A002
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """An average over depth, height and width: one over height and width, then one over depth."""
    divisor = None if divisor_override is None else 1
    pool = partial(F.avg_pool2d, ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor_override=divisor)
    mean = _by_depth(input, pool, kernel_size, stride or kernel_size, padding)
    return mean if divisor_override is None else mean / divisor_override


def _largest_of_blocks(
    input: Tensor,  # noqa: A002
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | int = 0,
    dilation: list[int] | int = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The maximum over depth, height and width: one over height and width, then one over depth."""
    pool = partial(F.max_pool2d, ceil_mode=ceil_mode)
    return _by_depth(input, pool, kernel_size, stride or kernel_size, padding, dilation)


def _by_depth(x: Tensor, pool: Callable[..., Tensor], *windows: list[int] | int) -> Tensor:
    """A pool of [..., D, H, W] as two pools of maps. `windows` are kernel, stride, padding and maybe dilation."""
    sizes = [_three(one) for one in windows]
    maps = pool(x.flatten(0, -4), *(one[1:] for one in sizes))
    maps = maps.reshape(*x.shape[:-2], *maps.shape[-2:])
    columns = maps.flatten(-2).reshape(-1, 1, x.shape[-3], maps.shape[-2] * maps.shape[-1])
    neutral = ([1], [1], [0], [1])
    deep = pool(columns, *[[one[0], *rest] for one, rest in zip(sizes, neutral, strict=False)])
    return deep.reshape(*x.shape[:-3], deep.shape[-2], *maps.shape[-2:])


def _adaptive_average_of_blocks(input: Tensor, output_size: list[int]) -> Tensor:  # noqa: A002
    maps = F.adaptive_avg_pool2d(input.flatten(0, -4), (output_size[1], output_size[2]))
    columns = maps.reshape(-1, 1, input.shape[-3], output_size[1] * output_size[2])
    deep = F.adaptive_avg_pool2d(columns, (output_size[0], columns.shape[-1]))
    return deep.reshape(*input.shape[:-3], *output_size)


def _three(value: list[int] | int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * 3 if len(values) == 1 else values


def _with_sign_of(self: Tensor, other: Tensor) -> Tensor:
    return torch.where(other < 0, -self.abs(), self.abs())


OWN: dict[Any, Callable[..., Any]] = {
    aten.adaptive_avg_pool3d.default: _adaptive_average_of_blocks,
    aten.atan2.default: _arc_tangent_of_quotient,
    aten.avg_pool3d.default: _average_of_blocks,
    aten.bilinear.default: _bilinear,
    aten.cdist.default: _distances,
    aten.copysign.Tensor: _with_sign_of,
    aten.exp2.default: lambda self: torch.pow(2.0, self),
    aten.fmax.default: torch.maximum,
    aten.fmin.default: torch.minimum,
    aten.hypot.default: lambda self, other: torch.sqrt(self * self + other * other),
    aten.linalg_cholesky.default: lambda self, *, upper=False: torch.linalg.cholesky_ex(self, upper=upper)[0],
    aten.linalg_inv.default: lambda A: torch.linalg.inv_ex(A)[0],  # noqa: N803 - its name in the schema
    aten.max_pool3d.default: _largest_of_blocks,
    aten.scaled_dot_product_attention.default: _attention,
}
"""Decompositions of our own, where torch has none or a longer one."""
