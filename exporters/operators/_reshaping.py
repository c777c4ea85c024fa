"""Operators that reorder, reshape or repeat elements, forward and transposed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.batching import Batching
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import along_axes, reshaped
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.program import Program, bind, reshape_sample, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["RESHAPING", "positive_axes", "spread"]

aten = torch.ops.aten


def spread(ct: Tensor, sample: tuple[int, ...]) -> Tensor:
    """Repeat along the sample's axes of length one until the sample has the shape `sample`: the transpose of a sum."""
    return ct.expand(*ct.shape[: -len(sample)], *sample)


def positive_axes(dims: Any, node: fx.Node) -> list[int]:
    """Axes of the node's value, counted from the front."""
    rank = len(shape_of(node))
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)]


# ------------------------------------------------------------------------------------------------------ transpose rules


def _transpose_reshape(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    x = bind(node).x
    t.add(x, t.reshape(ct, sample_shape(x)))


def _transpose_permute(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    order = [dim % len(a.dims) for dim in a.dims]
    if order[0] != 0:
        raise t.refusal("it moves the batch axis")
    back = [t.axis(order.index(i)) for i in range(len(order))]
    t.add(a.self, t.call(aten.permute.default, ct, [*range(t.axis(0)), *back]))


def _transpose_expand(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    x = bind(node).self
    t.add(x, t.sum_to(ct, x, sample_shape(node)))


# ------------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_reshape(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if a.leading > 1 and shape_of(a.x) == shape_of(node):
        return e.value(a.x)
    return e.op("Reshape", a.x, e.ints(*[0] * a.leading, *a.sample))


def _spell_permute(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Transpose", a.self, perm=positive_axes(a.dims, a.self))


def _spell_unsqueeze(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Unsqueeze", a.self, e.ints(a.dim % len(shape_of(node))))


def _spell_pixel_shuffle(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("DepthToSpace", a.self, blocksize=a.upscale_factor, mode="CRD")


def _spell_expand(e: Emitter, node: fx.Node) -> str:
    return e.op("Expand", node.args[0], e.ints(1, *shape_of(node)[1:]))


def _spell_spread(e: Emitter, node: fx.Node) -> str:
    sample = bind(node).sample
    return e.op("Expand", node.args[0], e.ints(*[1] * (len(shape_of(node)) - len(sample)), *sample))


# -------------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_expand(program: Program, node: fx.Node) -> None:
    source: Any = node.args[0]
    if shape_of(source) == shape_of(node):
        program.substitute(node, source)
    elif node.target is not aten.expand.default:
        program.replace(node, aten.expand.default, source, list(shape_of(node)))


def _batch_of_expand(b: Batching, node: fx.Node) -> fx.Node:
    shape = shape_of(node)
    full = not b.keeps_first(shape)
    x = b.aligned(node.args[0], len(shape), full=full)
    return b.call(aten.expand.default, x, [-1, *(shape if full else shape[1:])])


def _rewrite_transpose(program: Program, node: fx.Node) -> None:
    a = bind(node)
    order = list(range(len(shape_of(node))))
    order[a.dim0], order[a.dim1] = order[a.dim1], order[a.dim0]
    program.replace(node, aten.permute.default, a.self, order)


_VIEWS = (
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unflatten.int,
    aten.view.default,
    aten.view_as.default,
)

RESHAPING = (
    Operator(reshape_sample, Kind.LINEAR, _spell_reshape, _transpose_reshape, reshaped, traits=Trait.REORDERS),
    Operator(aten.permute.default, Kind.LINEAR, _spell_permute, _transpose_permute, along_axes, traits=Trait.REORDERS),
    Operator(aten.expand.default, Kind.LINEAR, _spell_expand, _transpose_expand, _batch_of_expand, _rewrite_expand),
    Operator(aten.unsqueeze.default, Kind.EXPLAIN, _spell_unsqueeze, batch=reshaped, traits=Trait.REORDERS),
    Operator(aten.pixel_shuffle.default, Kind.EXPLAIN, _spell_pixel_shuffle),
    Operator(spread, Kind.EXPLAIN, _spell_spread),
    *(Operator(target, Kind.SPELLING, batch=reshaped) for target in _VIEWS),
    Operator(aten.expand_as.default, Kind.SPELLING, rewrite=_rewrite_expand),
    Operator(aten.transpose.int, Kind.SPELLING, rewrite=_rewrite_transpose),
)
