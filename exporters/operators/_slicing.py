"""Operators that cut tensors into parts or put parts together, forward and transposed."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.batching import Batching, repeat_for_batch
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import along_axes, pass_on, per_map
from bcos_sdk.exporters.operators._elementwise import remove_node
from bcos_sdk.exporters.operators._moves import rewrite_pad
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.operators._reshaping import positive_axes
from bcos_sdk.exporters.operators._windows import Pair
from bcos_sdk.exporters.program import Program, bind, path_of, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["SLICING", "insert_zeros", "pick_every"]

aten = torch.ops.aten


def pick_every(x: Tensor, stride: Pair) -> Tensor:
    """Every s-th row and column of a feature map."""
    return x[:, :, :: stride[0], :: stride[1]]


def insert_zeros(ct: Tensor, axis: int, step: int, start: int, size: int) -> Tensor:
    """The transpose of x[start::step] along an axis of length `size`."""
    positions = torch.arange(ct.shape[axis]) * step + start
    out = ct.new_zeros(*ct.shape[:axis], size, *ct.shape[axis + 1 :])
    return out.index_copy(axis, positions, ct)


# ------------------------------------------------------------------------------------------------------ transpose rules


def _transpose_getitem(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    source, index = node.args
    t.add_part(source, index, ct)  # type: ignore[arg-type]


def _transpose_cat(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    axis = _sample_axis(t, a.dim, node)
    start = 0
    for part in a.tensors:
        end = start + shape_of(part)[axis]
        own = t.call(aten.slice.Tensor, ct, t.axis(axis), start, end)
        if part in t.live:
            t.add(part, own)
        else:
            t.add_bias(part, own, sample_shape(part))
        start = end


def _transpose_slice(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    axis = _sample_axis(t, a.dim, node)
    size = shape_of(a.self)[axis]
    start = slice(a.start, a.end).indices(size)[0]
    t.add(a.self, t.call(insert_zeros, ct, t.axis(axis), a.step, start, size))


def _transpose_pick_every(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    for axis, step in zip((2, 3), a.stride, strict=True):
        ct = t.call(insert_zeros, ct, t.axis(axis), step, 0, shape_of(a.x)[axis])
    t.add(a.x, ct)


def _transpose_pad(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    a = bind(node)
    t.add(a.self, t.call(aten.pad.default, ct, [-width for width in a.pad]))


def _sample_axis(t: Transposition, axis: int, node: fx.Node) -> int:
    """The axis, counted from the front. The batch axis is refused."""
    axis %= len(shape_of(node))
    if axis == 0:
        raise t.refusal("it works along the batch axis")
    return axis


# ------------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_getitem(e: Emitter, node: fx.Node) -> str:
    source, index = node.args
    return str(e.values[source][index])  # type: ignore[index]


def _spell_cat(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Concat", *a.tensors, axis=a.dim % len(shape_of(node)))


def _spell_slice(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    (axis,) = positive_axes(a.dim, a.self)
    start, end, step = slice(a.start, a.end, a.step).indices(shape_of(a.self)[axis])
    return e.op("Slice", a.self, e.ints(start), e.ints(end), e.ints(axis), e.ints(step))


def _spell_pick_every(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Slice", a.x, e.ints(0, 0), e.ints(*shape_of(a.x)[2:]), e.ints(2, 3), e.ints(*a.stride))


def _spell_pad(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    missing = [0] * (2 * len(shape_of(node)) - len(a.pad))
    widths = [*reversed(a.pad[::2]), *reversed(a.pad[1::2])]
    half = len(missing) // 2
    before, after = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    return e.op("Pad", a.self, e.ints(*missing[:half], *before, *missing[:half], *after))


def _spell_repeat_for_batch(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    batch = e.op("Slice", e.op("Shape", a.image), e.ints(0), e.ints(1), e.ints(0))
    one = e.op("Reshape", a.constant, e.ints(1, *a.sample))
    return e.op("Expand", one, e.op("Concat", batch, e.ints(*a.sample), axis=0))


def _spell_insert_zeros(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    shape = shape_of(a.ct)
    grown, length = e.value(a.ct), shape[a.axis]
    if a.step > 1:
        grown = e.op("Unsqueeze", grown, e.ints(a.axis + 1))
        zeros = [0] * (len(shape) + 1)
        grown = e.op("Pad", grown, e.ints(*zeros, *(a.step - 1 if i == a.axis + 1 else 0 for i in range(len(zeros)))))
        length *= a.step
        grown = e.op("Reshape", grown, e.ints(*[0] * a.axis, length, *shape[a.axis + 1 :]))
    after = a.size - a.start - length
    zeros = [0] * len(shape)
    ends = [after if i == a.axis else 0 for i in range(len(zeros))]
    starts = [a.start if i == a.axis else 0 for i in range(len(zeros))]
    return e.op("Pad", grown, e.ints(*starts, *ends)) if a.start or after else grown


# -------------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_split(program: Program, node: fx.Node) -> None:
    """Each part of a split is a slice."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    ends = [0]
    for part in node.meta["val"]:
        ends.append(ends[-1] + int(part.shape[axis]))
    for getitem in list(node.users):
        index: Any = getitem.args[1]
        program.replace(getitem, aten.slice.Tensor, a.self, axis, ends[index], ends[index + 1])
    program.graph.erase_node(node)


def _rewrite_slice(program: Program, node: fx.Node) -> None:
    """x[:] = x; torch writes x[:, 1:] as x[:] followed by a slice of the second axis."""
    if shape_of(node) == shape_of(bind(node).self):
        remove_node(program, node)


def _rewrite_select(program: Program, node: fx.Node) -> None:
    """x[:, i] is a slice of length one without its axis."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    start = a.index % shape_of(a.self)[axis]
    part = program.compute(node, aten.slice.Tensor, a.self, axis, start, start + 1)
    program.replace(node, aten.reshape.default, part, list(shape_of(node)))


def _rewrite_copy(program: Program, node: fx.Node) -> None:
    """x.copy_(y) is y, expanded to the shape of x."""
    a = bind(node)
    program.replace(node, aten.expand.default, a.src, list(shape_of(node)))


def _rewrite_fill(program: Program, node: fx.Node) -> None:
    """x.new_zeros(…), zeros_like and the like depend only on the shape and dtype of x, so they are constants."""
    operator: Any = node.target
    value = node.meta["val"]
    empty = torch.empty(shape_of(bind(node).self), dtype=bind(node).self.meta["val"].dtype)
    filled = operator(empty, *node.args[1:], **node.kwargs)
    constant = program.constant(path_of(node), filled.to(value.dtype), anonymous=True)
    program.substitute(node, constant)


def _batch_of_parts(b: Batching, node: fx.Node) -> fx.Node:
    """Constants among the parts are repeated for each image."""
    a = bind(node)
    rank = len(shape_of(node))
    axis = a.dim % rank
    full = axis == 0 or not b.keeps_first(shape_of(node))
    parts = [b.with_batch(part, full=full) for part in a.tensors if len(shape_of(part)) == rank]
    joined = b.call(aten.cat.default, parts, axis + 1 if full else axis)
    return b.settle(joined, shape_of(node)) if full else joined


def _batch_of_pad(b: Batching, node: fx.Node) -> fx.Node:
    a = bind(node)
    source = a.self
    if b.keeps_first(shape_of(source)) and len(a.pad) // 2 < len(shape_of(source)):
        return b.call(aten.pad.default, b.own(source), a.pad)
    return b.settle(b.call(aten.pad.default, b.full(source), a.pad), shape_of(node))


_FILLS = (
    aten.empty_like.default,
    aten.full_like.default,
    aten.new_empty.default,
    aten.new_full.default,
    aten.new_ones.default,
    aten.new_zeros.default,
    aten.ones_like.default,
    aten.zeros_like.default,
)
_SPLITS = (
    aten.chunk.default,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.tensor_split.indices,
    aten.tensor_split.sections,
)

SLICING = (
    Operator(operator.getitem, Kind.LINEAR, _spell_getitem, _transpose_getitem, pass_on),
    Operator(aten.cat.default, Kind.LINEAR, _spell_cat, _transpose_cat, _batch_of_parts),
    Operator(aten.slice.Tensor, Kind.LINEAR, _spell_slice, _transpose_slice, along_axes, _rewrite_slice),
    Operator(pick_every, Kind.LINEAR, _spell_pick_every, _transpose_pick_every, per_map),
    Operator(aten.pad.default, Kind.LINEAR, _spell_pad, _transpose_pad, _batch_of_pad, rewrite_pad),
    Operator(insert_zeros, Kind.EXPLAIN, _spell_insert_zeros),
    Operator(repeat_for_batch, Kind.EXPLAIN, _spell_repeat_for_batch),
    Operator(aten.copy.default, Kind.SPELLING, rewrite=_rewrite_copy),
    Operator(aten.select.int, Kind.SPELLING, rewrite=_rewrite_select),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_split) for target in _SPLITS),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_fill) for target in _FILLS),
)
