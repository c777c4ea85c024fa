"""How an operator for one image becomes the same operator for a batch, by the way it treats its axes."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters.batching import Batching
from bcos_sdk.exporters.program import bind, path_of, reshape_sample, shape_of

__all__ = ["along_axes", "elementwise", "matrix_product", "pass_on", "per_map", "reshaped", "rows"]

aten = torch.ops.aten

_AXES = ("dim", "dims", "axis")


def elementwise(b: Batching, node: fx.Node) -> fx.Node:
    """Operands broadcast against each other. All of them get the rank of the result."""
    shape = shape_of(node)
    full = not b.keeps_first(shape)
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: b.aligned(operand, len(shape), full=full))
    return b.call(_target(node), *args, **kwargs)


def pass_on(b: Batching, node: fx.Node) -> fx.Node:
    """One of several results of an operator."""
    result = b.call(_target(node), b.own(node.args[0]), *node.args[1:])
    return b.settle(result, shape_of(node)) if node.args[0] in b.has_full_results else result


def along_axes(b: Batching, node: fx.Node) -> fx.Node:
    """The operator works along the axes that its argument names: `dim`, `dims` or `axis`.

    Operands are its input, and tensors of the same rank such as the index of a gather.
    """
    given = vars(bind(node))
    names = list(given)
    rank = len(shape_of(node.all_input_nodes[0]))
    name = next(one for one in _AXES if one in names)
    axes = list(range(rank)) if given[name] is None or given[name] == [] else given[name]
    listed = [axis % rank for axis in ([axes] if isinstance(axes, int) else axes)]
    tensors = [one for one in node.all_input_nodes if b.is_per_image(one)]
    order_kept = name == "dims" and listed[0] == 0
    first_kept = all(b.keeps_first(shape_of(one)) for one in tensors)
    full = not (first_kept and (order_kept or 0 not in listed))
    if full:
        listed = [0, *(axis + 1 for axis in listed)] if name == "dims" else [axis + 1 for axis in listed]
    given[name] = listed[0] if isinstance(axes, int) else listed
    operands = {key: fx.map_arg(value, lambda one: _operand(b, one, full)) for key, value in given.items()}
    positional = names[: max(len(node.args), 0 if name in node.kwargs else names.index(name) + 1)]
    args = [operands[one] for one in positional]
    kwargs = {key: operands[key] for key in node.kwargs}
    result = b.call(_target(node), *args, **kwargs)
    if not full:
        return result
    if isinstance(node.meta["val"], (tuple, list)):
        b.has_full_results.add(node)
        return result
    return b.settle(result, shape_of(node))


def _operand(b: Batching, one: fx.Node, full: bool) -> Any:
    if not b.is_per_image(one):
        return b.own(one)
    return b.full(one) if full else b.own(one)


def reshaped(b: Batching, node: fx.Node) -> fx.Node:
    """The same elements in another shape."""
    shape = shape_of(node)
    sample = shape[1:] if b.keeps_first(shape) else shape
    return b.call(reshape_sample, b.own(node.args[0]), sample, 1)


def rows(b: Batching, node: fx.Node) -> fx.Node:
    """The operator works on the last axis of its first operand; the others are constants."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if b.keeps_first(shape_of(source)) and len(shape_of(source)) > 1:
        return b.call(_target(node), b.own(source), *(b.own(one) for one in node.args[1:]))
    result = b.call(_target(node), b.full(source), *(b.own(one) for one in node.args[1:]))
    return b.settle(result, shape_of(node))


def matrix_product(b: Batching, node: fx.Node) -> fx.Node:
    """Matrices in the last two axes; the axes before them broadcast. A vector is a matrix with one row or column."""
    left, right = node.args
    assert isinstance(left, fx.Node)
    assert isinstance(right, fx.Node)
    shapes = shape_of(left), shape_of(right)
    rank = max(2, *map(len, shapes))
    if len(shapes[0]) > 1 and len(shapes[1]) > 1:
        first_is_batch = rank > 2 or (not b.is_per_image(right) and shapes[0][0] == 1)
        full = not (first_is_batch and b.keeps_first(shape_of(node)))
        operands = [b.aligned(one, rank, full=full) for one in (left, right)]
        return b.call(aten.matmul.default, *operands)
    as_matrix = [
        (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0],
        (*shapes[1], 1) if len(shapes[1]) == 1 else shapes[1],
    ]
    operands = [
        b.call(reshape_sample, b.own(one), (*[1] * (rank - len(shape)), *shape), 1)
        if b.is_per_image(one)
        else b.new.constant(path_of(one), b.old.value_of(one).reshape(shape))
        for one, shape in zip((left, right), as_matrix, strict=True)
    ]
    product = b.call(aten.matmul.default, *operands)
    return b.settle(b.call(reshape_sample, product, shape_of(node), 1), shape_of(node))


def per_map(b: Batching, node: fx.Node) -> fx.Node:
    """A pool: each map [H, W] by itself. Several images of one image's batch axis, such as windows, become channels."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    shape, result = shape_of(source), shape_of(node)
    if b.keeps_first(shape) and len(shape) == 4:
        return b.call(_target(node), b.own(source), *node.args[1:], **node.kwargs)
    maps = b.call(reshape_sample, b.own(source), (prod(shape[:-2]), *shape[-2:]), 1)
    pooled = b.call(_target(node), maps, *node.args[1:], **node.kwargs)
    return b.call(reshape_sample, pooled, result[1:] if b.keeps_first(result) else result, 1)


def _target(node: fx.Node) -> Any:
    return node.target
