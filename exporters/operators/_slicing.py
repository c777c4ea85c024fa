"""Operators that cut tensors into parts or put parts together, forward and transposed."""

from __future__ import annotations

import operator
import sys
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError, ExportError
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._elementwise import remove_node
from bcos_sdk.exporters.operators._operator import Kind, Operator, Trait
from bcos_sdk.exporters.operators._reshaping import positive_axes
from bcos_sdk.exporters.operators._windows import Pair
from bcos_sdk.exporters.program import Program, bind, path_of, reshape_sample, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["SLICING", "insert_zeros", "pick_every"]

aten = torch.ops.aten

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


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
    if a.mode != "constant" or a.value:
        raise t.refusal("it pads with values other than zero")
    _sample_axis(t, -len(a.pad) // 2, node)
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
    if a.mode not in _PAD_MODES:
        raise ExportError(
            f"padding with mode {a.mode!r} in module '{path_of(node)}' has no ONNX spelling",
            source=path_of(node),
            hint=f"Use one of the modes {', '.join(_PAD_MODES)}.",
        )
    missing = [0] * (2 * len(shape_of(node)) - len(a.pad))
    widths = [*reversed(a.pad[::2]), *reversed(a.pad[1::2])]
    half = len(missing) // 2
    before, after = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    amounts = e.ints(*missing[:half], *before, *missing[:half], *after)
    return e.op("Pad", a.self, amounts, *([a.value] if a.value else []), mode=_PAD_MODES[a.mode])


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
    a = bind(node)
    if not a.start and a.step == 1 and (a.end is None or a.end == sys.maxsize):
        remove_node(program, node)


def _rewrite_select(program: Program, node: fx.Node) -> None:
    """x[:, i] is a slice of length one without its axis."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    if axis == 0:
        return
    start = a.index % shape_of(a.self)[axis]
    with program.graph.inserting_before(node):
        part = program.graph.call_function(aten.slice.Tensor, (a.self, axis, start, start + 1))
    value = a.self.meta["val"]
    part.meta = dict(node.meta) | {"val": value.narrow(axis, start, 1)}
    program.replace(node, reshape_sample, part, sample_shape(node), 1)


def _rewrite_fill(program: Program, node: fx.Node) -> None:
    """x.new_zeros(…), new_ones and new_full depend only on the dtype of x, so they are constants."""
    operator: Any = node.target
    if len(node.all_input_nodes) > 1:
        raise CaptureError(
            f"operator {operator} in module '{path_of(node)}' creates a tensor whose shape depends on the batch size",
            source=path_of(node),
            hint="Create the tensor without the batch axis and let it broadcast.",
        )
    empty = torch.empty(0, dtype=bind(node).self.meta["val"].dtype)
    value = operator(empty, *node.args[1:], **node.kwargs)
    constant = program.constant(path_of(node), value)
    constant.meta["anonymous"] = True
    node.replace_all_uses_with(constant)
    program.graph.erase_node(node)


_FILLS = (aten.new_full.default, aten.new_ones.default, aten.new_zeros.default)
_SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default)

SLICING = (
    Operator(operator.getitem, Kind.LINEAR, _spell_getitem, _transpose_getitem, traits=Trait.ALIASES),
    Operator(aten.cat.default, Kind.LINEAR, _spell_cat, _transpose_cat),
    Operator(aten.slice.Tensor, Kind.LINEAR, _spell_slice, _transpose_slice, _rewrite_slice),
    Operator(pick_every, Kind.LINEAR, _spell_pick_every, _transpose_pick_every),
    Operator(aten.pad.default, Kind.LINEAR, _spell_pad, _transpose_pad),
    Operator(insert_zeros, Kind.EXPLAIN, _spell_insert_zeros),
    Operator(aten.select.int, Kind.SPELLING, rewrite=_rewrite_select),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_split) for target in _SPLITS),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_fill) for target in _FILLS),
)
