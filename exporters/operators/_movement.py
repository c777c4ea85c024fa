"""Operators that move or copy elements without changing them, forward and transposed."""

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
from bcos_sdk.exporters.operators._windows import Pair
from bcos_sdk.exporters.program import Program, bind, path_of, reshape_sample, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["MOVEMENT", "insert_zeros", "pick_every", "positive_axes", "spread"]

aten = torch.ops.aten

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def spread(ct: Tensor, sample: tuple[int, ...]) -> Tensor:
    """Repeat along the sample's axes of length one until the sample has the shape `sample`: the transpose of a sum."""
    return ct.expand(*ct.shape[: -len(sample)], *sample)


def pick_every(x: Tensor, stride: Pair) -> Tensor:
    """Every s-th row and column of a feature map."""
    return x[:, :, :: stride[0], :: stride[1]]


def insert_zeros(ct: Tensor, axis: int, step: int, start: int, size: int) -> Tensor:
    """The transpose of x[start::step] along an axis of length `size`."""
    positions = torch.arange(ct.shape[axis]) * step + start
    out = ct.new_zeros(*ct.shape[:axis], size, *ct.shape[axis + 1 :])
    return out.index_copy(axis, positions, ct)


def positive_axes(dims: Any, node: fx.Node) -> list[int]:
    """Axes of the node's value, counted from the front."""
    rank = len(shape_of(node))
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)]


# -------------------------------------------------------------------------------------------------- transpose rules


def _transpose_getitem(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    source, index = node.args
    t.add_part(source, index, ct)  # type: ignore[arg-type]


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
    if x in t.live:
        t.add(x, t.sum_to(ct, x, sample_shape(node)))
    else:  # expand_as(x, other) with a live `other`, which gives its shape only
        t.add_bias(x, ct, sample_shape(node))


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


# --------------------------------------------------------------------------------------------------- ONNX spellings


def _spell_getitem(e: Emitter, node: fx.Node) -> str:
    source, index = node.args
    return str(e.values[source][index])  # type: ignore[index]


def _spell_reshape(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if a.leading > 1 and shape_of(a.x) == shape_of(node):
        return e.value(a.x)
    return e.op("Reshape", a.x, e.ints(*[0] * a.leading, *a.sample))


def _spell_spread(e: Emitter, node: fx.Node) -> str:
    sample = bind(node).sample
    return e.op("Expand", node.args[0], e.ints(*[1] * (len(shape_of(node)) - len(sample)), *sample))


def _spell_expand(e: Emitter, node: fx.Node) -> str:
    return e.op("Expand", node.args[0], e.ints(1, *shape_of(node)[1:]))


def _spell_repeat_interleave(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    (axis,) = positive_axes(a.dim, a.self)
    apart = e.op("Unsqueeze", a.self, e.ints(axis + 1))
    rank = len(shape_of(a.self)) + 1
    repeated = e.op("Expand", apart, e.ints(*(a.repeats if i == axis + 1 else 1 for i in range(rank))))
    return e.op("Reshape", repeated, e.ints(0, *shape_of(node)[1:]))


def _spell_permute(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Transpose", a.self, perm=positive_axes(a.dims, a.self))


def _spell_unsqueeze(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Unsqueeze", a.self, e.ints(a.dim % len(shape_of(node))))


def _spell_pixel_shuffle(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("DepthToSpace", a.self, blocksize=a.upscale_factor, mode="CRD")


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


# --------------------------------------------------------------------------------------------- rewrites at capture


def _rewrite_view(program: Program, node: fx.Node) -> None:
    """Every view that keeps the batch axis is a reshape of the sample."""
    source = node.all_input_nodes[0]
    if not (_has_batch(program, source) and _has_batch(program, node)):
        raise CaptureError(
            f"operator {node.target} in module '{path_of(node)}' mixes the batch with another axis: it reshapes "
            f"{list(shape_of(source))} to {list(shape_of(node))}",
            source=path_of(node),
            hint="Keep the batch as the first axis of every tensor.",
        )
    program.replace(node, reshape_sample, source, sample_shape(node), 1)


def _has_batch(program: Program, node: fx.Node) -> bool:
    """Whether the first axis is the batch and the sizes of all other axes are known."""
    first, *rest = shape_of(node) or (0,)
    batch = shape_of(program.inputs[0])[0]
    return str(first) == str(batch) and all(isinstance(size, int) for size in rest)


def _rewrite_transpose(program: Program, node: fx.Node) -> None:
    a = bind(node)
    order = list(range(len(shape_of(node))))
    order[a.dim0], order[a.dim1] = order[a.dim1], order[a.dim0]
    program.replace(node, aten.permute.default, a.self, order)


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


_VIEWS = (
    aten.flatten.using_ints,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unflatten.int,
    aten.view.default,
    aten.view_as.default,
)
_FILLS = (aten.new_full.default, aten.new_ones.default, aten.new_zeros.default)
_SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default)

MOVEMENT = (
    Operator(operator.getitem, Kind.LINEAR, _spell_getitem, _transpose_getitem, traits=Trait.ALIASES),
    Operator(reshape_sample, Kind.LINEAR, _spell_reshape, _transpose_reshape, traits=Trait.REORDERS),
    Operator(aten.permute.default, Kind.LINEAR, _spell_permute, _transpose_permute, traits=Trait.REORDERS),
    Operator(aten.expand.default, Kind.LINEAR, _spell_expand, _transpose_expand),
    Operator(aten.expand_as.default, Kind.LINEAR, _spell_expand, _transpose_expand),
    Operator(aten.cat.default, Kind.LINEAR, _spell_cat, _transpose_cat),
    Operator(aten.slice.Tensor, Kind.LINEAR, _spell_slice, _transpose_slice, _rewrite_slice),
    Operator(pick_every, Kind.LINEAR, _spell_pick_every, _transpose_pick_every),
    Operator(aten.pad.default, Kind.LINEAR, _spell_pad, _transpose_pad),
    Operator(aten.repeat_interleave.self_int, Kind.FROZEN, _spell_repeat_interleave),
    Operator(
        aten.unsqueeze.default,
        Kind.EXPLAIN,
        _spell_unsqueeze,
        rewrite=_rewrite_view,
        traits=Trait.REORDERS | Trait.ALIASES,
    ),
    Operator(aten.pixel_shuffle.default, Kind.EXPLAIN, _spell_pixel_shuffle),
    Operator(spread, Kind.EXPLAIN, _spell_spread),
    Operator(insert_zeros, Kind.EXPLAIN, _spell_insert_zeros),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_view, traits=Trait.ALIASES) for target in _VIEWS),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_fill) for target in _FILLS),
    *(Operator(target, Kind.SPELLING, rewrite=_rewrite_split) for target in _SPLITS),
    Operator(aten.select.int, Kind.SPELLING, rewrite=_rewrite_select),
    Operator(aten.transpose.int, Kind.SPELLING, rewrite=_rewrite_transpose),
)
