"""Long sums of products whose running total is in fp16: total ← fp16(total + the next 16 products).

Tensor cores multiply fp16 exactly and add 16 products at a time, to a total in float32 or in fp16. TensorRT may choose
either. A total in fp16 is rounded at each step, so the error grows with the length of the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.operators import conv_transpose, flipped_conv, to_half
from bcos_sdk.exporters.passes._half import operands, settings
from bcos_sdk.exporters.program import bind

__all__ = ["LONG_SUM", "half_sum", "sum_length"]

aten = torch.ops.aten

LONG_SUM = 2000
"""Sums of at most this many products stay inside the tolerance of fp16 in every case that was tried."""
_AT_ONCE = 16
_CHANNELS = -3
_MATRIX_PRODUCTS = (aten.matmul.default, aten.linear.default)
_BY_OUTPUTS = (conv_transpose, flipped_conv)
"""Convolutions that sum over the first axis of their weights. All others sum over the second."""


def sum_length(node: fx.Node) -> int:
    """How many products each element of the result sums, at most."""
    first, second = (one.meta["val"].shape for one in operands(node))
    if node.target in _MATRIX_PRODUCTS:
        return int(first[-1])
    return int(first[_CHANNELS]) // _groups(node) * int(torch.Size(second[2:]).numel())


def half_sum(node: fx.Node, first: Tensor, second: Tensor) -> Tensor:
    """The product of two tensors with values of fp16, with a running total in fp16."""
    operator: Any = node.target
    is_matrix_product = node.target in _MATRIX_PRODUCTS
    size = first.shape[-1 if is_matrix_product else _CHANNELS]
    step = _AT_ONCE if is_matrix_product else max(1, _AT_ONCE // second[0, 0].numel())
    total: Tensor | None = None
    for start in range(0, size, step):
        part = operator(*_part(node, first, second, slice(start, start + step)), *settings(node))
        total = part if total is None else total + part
        total = to_half(total).to(first.dtype)
    assert total is not None
    return total


def _part(node: fx.Node, first: Tensor, second: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """The factors of some of the products that are summed."""
    if node.target is aten.matmul.default:
        return first[..., part], second[..., part, :]
    if node.target is aten.linear.default:
        return first[..., part], second[:, part]
    channels = first[..., part, :, :]
    if _groups(node) == 1:
        return channels, second[part] if node.target in _BY_OUTPUTS else second[:, part]
    others = torch.zeros_like(first)  # a group has only some of the channels
    others[..., part, :, :] = channels
    return others, second


def _groups(node: fx.Node) -> int:
    return int(getattr(bind(node), "groups", 1))
