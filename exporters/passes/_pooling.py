"""Simplify pooling windows.

skip_unit_windows  Σ over a 1×1 window = the value itself
repeat_averages    the transpose of an average pool with kernel = stride repeats each value over its window
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.operators import avg_pool_transpose, pick_every, repeat_average
from bcos_sdk.exporters.program import Program, bind, is_constant, pair

__all__ = ["repeat_averages", "skip_unit_windows"]

aten = torch.ops.aten


def skip_unit_windows(program: Program) -> int:
    """Σ over a 1×1 window = the value itself, so patch norms of 1×1 convolutions need no pool.

    With a stride, the window picks every s-th value: a slice.
    """
    skipped = 0
    for node in list(program.graph.nodes):
        source = _pooled(program, node)
        if source is None:
            continue
        stride = pair(bind(node).stride or 1)
        if stride == (1, 1):
            node.replace_all_uses_with(source)
            program.graph.erase_node(node)
        else:
            program.replace(node, pick_every, source, stride)
        skipped += 1
    return skipped


def _pooled(program: Program, node: fx.Node) -> fx.Node | None:
    """The input of the pool, if its window is 1×1 without padding."""
    if node.target not in (aten.avg_pool2d.default, aten.conv2d.default):
        return None
    a: Any = bind(node)
    if any(pair(a.padding)):
        return None
    if node.target is aten.avg_pool2d.default:
        source, is_unit = a.self, pair(a.kernel_size) == (1, 1) and a.divisor_override is None
    else:
        has_weight_alone = a.bias is None and is_constant(a.weight)
        source, is_unit = a.input, has_weight_alone and _is_unit(program.value_of(a.weight), a.groups)
    return source if is_unit else None


def _is_unit(weight: Tensor, groups: int) -> bool:
    """Whether the convolution multiplies each channel by one and nothing else."""
    return weight.shape == (groups, 1, 1, 1) and bool((weight == 1).all())


def repeat_averages(program: Program) -> int:
    """avg_poolᵀ with kernel = stride: windows do not overlap, so each value / k² is repeated over its window."""
    repeated = 0
    for node in list(program.graph.find_nodes(op="call_function", target=avg_pool_transpose)):
        a = bind(node)
        if a.kernel == a.stride and a.padding == (0, 0):
            program.replace(node, repeat_average, a.ct, a.kernel, a.size)
            repeated += 1
    return repeated
