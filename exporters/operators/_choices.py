"""Selections: maxima, sorted values and other elements that a frozen index picks. With the index they are linear."""

from __future__ import annotations

import operator
from types import SimpleNamespace

import torch
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import along_axes
from bcos_sdk.exporters.operators._moves import rewrite_move
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.operators._piecewise import keep_where
from bcos_sdk.exporters.operators._reshaping import positive_axes
from bcos_sdk.exporters.program import Program, bind, is_constant, path_of, reshape_sample, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["CHOICES", "is_first_largest", "spell_first_largest"]

aten = torch.ops.aten


def is_first_largest(x: Tensor, axis: int) -> Tensor:
    """True at the largest value along the axis; among equal values, at the first."""
    steps = torch.arange(x.shape[axis]).view(-1, *[1] * (x.ndim - axis - 1))
    return x.argmax(axis, keepdim=True) == steps


def add_at(ct: Tensor, index: Tensor, axis: int, size: int) -> Tensor:
    """The transpose of a gather along an axis of length `size`: each cotangent is added at its index."""
    steps = torch.arange(size).view(-1, *[1] * (ct.ndim - axis))
    return keep_where(ct.unsqueeze(axis), index.unsqueeze(axis) == steps).sum(axis + 1)


# -------------------------------------------------------------------------------------------------- transpose rules


def _transpose_max(t: Transposition, node: fx.Node, cts: dict[int, fx.Node]) -> None:
    """MaxOut: the largest unit gets the whole cotangent; among equal units, the first."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    sample = list(sample_shape(a.self))
    sample[axis - 1] = 1
    ct = t.reshape(cts[0], tuple(sample))
    winner = t.call(is_first_largest, a.self, axis)
    t.add(a.self, t.call(keep_where, ct, t.broadcast_over_targets(winner)))


def _transpose_amax(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """Values that are equal to the largest share the cotangent."""
    a = bind(node)
    axes = positive_axes(a.dim, a.self)
    sample = tuple(1 if 1 + i in axes else size for i, size in enumerate(sample_shape(a.self)))
    largest = t.call(reshape_sample, node, sample, 1)
    wins = t.call(aten.to.dtype, t.call(aten.eq.Tensor, a.self, largest), a.self.meta["val"].dtype)
    share = t.call(aten.div.Tensor, wins, t.call(aten.sum.dim_IntList, wins, axes, True))
    t.add(a.self, t.call(aten.mul.Tensor, t.reshape(ct, sample), t.broadcast_over_targets(share)))


def _transpose_gather(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    axis = a.dim % len(shape_of(node))
    index = t.broadcast_over_targets(a.index)
    t.add(a.self, t.call(add_at, ct, index, t.axis(axis), shape_of(a.self)[axis]))


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_max(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    (axis,) = positive_axes(a.dim, a.self)
    largest = e.op("ReduceMax", a.self, e.ints(axis), keepdims=int(a.keepdim))
    wants_index = any(getitem.args[1] == 1 for getitem in node.users)
    return [largest, e.op("ArgMax", a.self, axis=axis, keepdims=int(a.keepdim)) if wants_index else ""]


def _spell_amax(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kind = "ReduceMax" if node.target is aten.amax.default else "ReduceMin"
    return e.op(kind, a.self, e.ints(*positive_axes(a.dim, a.self)), keepdims=int(a.keepdim))


def _spell_argmax(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("ArgMax", a.self, axis=positive_axes(a.dim, a.self)[0], keepdims=int(a.keepdim))


def _spell_topk(e: Emitter, node: fx.Node) -> list[str]:
    """The indices alone: capture reads the values with a gather."""
    a = bind(node)
    (axis,) = positive_axes(a.dim, a.self)
    return ["", e.pick("TopK", 1, a.self, e.ints(a.k), axis=axis, largest=int(a.largest))]


def _spell_gather(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("GatherElements", a.self, a.index, axis=positive_axes(a.dim, a.self)[0])


def _spell_add_at(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    steps = torch.arange(a.size).view(-1, *[1] * (len(shape_of(a.ct)) - a.axis))
    is_here = e.op("Equal", e.op("Unsqueeze", a.index, e.ints(a.axis)), e.constant(steps, "steps"))
    placed = e.op("Where", is_here, e.op("Unsqueeze", a.ct, e.ints(a.axis)), 0.0)
    return e.op("ReduceSum", placed, e.ints(a.axis + 1), keepdims=0)


def _spell_is_first_largest(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return spell_first_largest(e, e.value(a.x), a.axis, shape_of(a.x))


def spell_first_largest(e: Emitter, x: str, axis: int, shape: tuple[int, ...]) -> str:
    steps = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - axis - 1))
    return e.op("Equal", e.op("ArgMax", x, axis=axis, keepdims=1), e.constant(steps, "steps"))


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_gather(program: Program, node: fx.Node) -> None:
    """An index that is the same for every image moves elements. Otherwise the other axes must have their full size."""
    a = bind(node)
    if is_constant(a.index):
        rewrite_move(program, node)
        return
    _check_other_axes(node, a)


def _check_other_axes(node: fx.Node, a: SimpleNamespace) -> None:
    """Refuse an index that leaves out elements of the axes that it does not choose from."""
    axis = a.dim % len(shape_of(a.self))
    for other, (length, full) in enumerate(zip(shape_of(a.index), shape_of(a.self), strict=True)):
        if other != axis and length != full:
            raise CaptureError(
                f"operator {node.target} in module '{path_of(node)}' reads {length} of {full} elements of axis {other}",
                source=path_of(node),
                hint="Slice the input first, so that only the gathered axis has another length.",
            )


def _rewrite_mark(program: Program, node: fx.Node) -> None:
    """One number at the places of an index: wherever a step along the axis equals an element of the index."""
    a = bind(node)
    _check_other_axes(node, a)
    axis = a.dim % len(shape_of(node))
    steps = torch.arange(shape_of(node)[axis]).view(-1, *[1] * (len(shape_of(node)) - axis))
    index = program.compute(node, aten.unsqueeze.default, a.index, axis)
    numbers = program.constant(path_of(node), steps, anonymous=True)
    here = program.compute(node, aten.eq.Tensor, index, numbers)
    marked = program.compute(node, aten.any.dim, here, axis + 1)
    value = torch.tensor(a.value, dtype=node.meta["val"].dtype)
    number = program.constant(path_of(node), value, anonymous=True)
    program.replace(node, aten.where.self, marked, number, a.self)


def _rewrite_minimum(program: Program, node: fx.Node) -> None:
    """min(x) = −max(−x), with the same index."""
    a = bind(node)
    negative = program.compute(node, aten.neg.default, a.self)
    largest = program.compute(node, aten.max.dim, negative, a.dim, a.keepdim)
    for getitem in list(node.users):
        value = program.compute(getitem, operator.getitem, largest, getitem.args[1])
        program.substitute(
            getitem, program.compute(getitem, aten.neg.default, value) if getitem.args[1] == 0 else value
        )
    program.graph.erase_node(node)


def _rewrite_argmin(program: Program, node: fx.Node) -> None:
    a = bind(node)
    program.replace(node, aten.argmax.default, program.compute(node, aten.neg.default, a.self), a.dim, a.keepdim)


def _rewrite_sorted(program: Program, node: fx.Node) -> None:
    """Sorted, largest, k-th and median values are gathered by their indices."""
    a = bind(node)
    shape = shape_of(a.self)
    axis = a.dim % len(shape)
    size = shape[axis]
    if node.target is aten.topk.default and all(getitem.args[1] == 1 for getitem in node.users):
        return
    is_one = node.target in (aten.kthvalue.default, aten.median.dim)
    count = (size + 1) // 2 if node.target is aten.median.dim else getattr(a, "k", size)
    largest = not is_one and getattr(a, "largest", getattr(a, "descending", False))
    found = program.compute(node, aten.topk.default, a.self, count, axis, largest)
    index = program.compute(node, operator.getitem, found, 1)
    if is_one:
        index = program.compute(node, aten.slice.Tensor, index, axis, count - 1, count)
    values = program.compute(node, aten.gather.default, a.self, axis, index)
    for getitem in list(node.users):
        result = values if getitem.args[1] == 0 else index
        if shape_of(getitem) != shape_of(result):
            result = program.compute(getitem, aten.reshape.default, result, list(shape_of(getitem)))
        program.substitute(getitem, result)
    program.graph.erase_node(node)


def _rewrite_whole_maximum(program: Program, node: fx.Node) -> None:
    """The largest or smallest of all elements."""
    a = bind(node)
    target = aten.amax.default if node.target is aten.max.default else aten.amin.default
    program.replace(node, target, a.self, list(range(len(shape_of(a.self)))), False)


_SORTED = (aten.kthvalue.default, aten.median.dim, aten.sort.default, aten.sort.stable)

CHOICES = (
    Operator(aten.max.dim, Kind.CHOICE, _spell_max, _transpose_max, along_axes),
    Operator(aten.amax.default, Kind.CHOICE, _spell_amax, _transpose_amax, along_axes),
    Operator(aten.amin.default, Kind.CHOICE, _spell_amax, _transpose_amax, along_axes),
    Operator(aten.gather.default, Kind.CHOICE, _spell_gather, _transpose_gather, along_axes, _rewrite_gather),
    Operator(aten.argmax.default, Kind.FROZEN, _spell_argmax, batch=along_axes),
    Operator(aten.topk.default, Kind.FROZEN, _spell_topk, batch=along_axes, rewrite=_rewrite_sorted),
    Operator(add_at, Kind.EXPLAIN, _spell_add_at),
    Operator(is_first_largest, Kind.EXPLAIN, _spell_is_first_largest),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_sorted) for target in _SORTED),
    Operator(aten.scatter.value, Kind.SPELLING, rewrite=_rewrite_mark),
    Operator(aten.min.dim, Kind.SPELLING, rewrite=_rewrite_minimum),
    Operator(aten.argmin.default, Kind.SPELLING, rewrite=_rewrite_argmin),
    Operator(aten.max.default, Kind.SPELLING, rewrite=_rewrite_whole_maximum),
    Operator(aten.min.default, Kind.SPELLING, rewrite=_rewrite_whole_maximum),
)
