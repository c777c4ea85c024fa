"""Operators that move numbers without changing them."""

from __future__ import annotations

import torch
from torch import fx

from bcos_sdk.errors import ExportError
from bcos_sdk.exporters import _ops as ops
from bcos_sdk.exporters._emit import Emitter
from bcos_sdk.exporters._program import bind, path_of, shape_of
from bcos_sdk.exporters.onnx_ops._table import positive, spells

aten = torch.ops.aten

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@spells(ops.reshape_sample)
def reshape_sample(e: Emitter, node: fx.Node) -> str:
    return e.op("Reshape", node.args[0], e.ints(0, *shape_of(node)[1:]))


@spells(ops.reshape_cotangent)
def reshape_cotangent(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if shape_of(a.ct) == shape_of(node):
        return e.value(a.ct)
    return e.op("Reshape", a.ct, e.ints(0, 0, *shape_of(node)[2:]))


@spells(ops.spread)
def spread(e: Emitter, node: fx.Node) -> str:
    sample = bind(node).sample
    return e.op("Expand", node.args[0], e.ints(*[1] * (len(shape_of(node)) - len(sample)), *sample))


@spells(aten.expand.default, aten.expand_as.default)
def expand(e: Emitter, node: fx.Node) -> str:
    return e.op("Expand", node.args[0], e.ints(1, *shape_of(node)[1:]))


@spells(aten.repeat_interleave.self_int)
def repeat_interleave(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    sample = list(shape_of(a.self))
    (axis,) = positive(a.dim, a.self)
    apart = e.op("Unsqueeze", a.self, e.ints(axis + 1))
    repeated = e.op("Expand", apart, e.ints(*(a.repeats if i == axis + 1 else 1 for i in range(len(sample) + 1))))
    return e.op("Reshape", repeated, e.ints(0, *shape_of(node)[1:]))


@spells(aten.permute.default)
def permute(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Transpose", a.self, perm=positive(a.dims, a.self))


@spells(aten.unsqueeze.default)
def unsqueeze(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Unsqueeze", a.self, e.ints(a.dim % len(shape_of(node))))


@spells(aten.pixel_shuffle.default)
def pixel_shuffle(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("DepthToSpace", a.self, blocksize=a.upscale_factor, mode="CRD")


@spells(aten.cat.default)
def cat(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Concat", *a.tensors, axis=a.dim % len(shape_of(node)))


@spells(aten.slice.Tensor)
def slice_(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    (axis,) = positive(a.dim, a.self)
    start, end, step = slice(a.start, a.end, a.step).indices(shape_of(a.self)[axis])
    return e.op("Slice", a.self, e.ints(start), e.ints(end), e.ints(axis), e.ints(step))


@spells(ops.pick_every)
def pick_every(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Slice", a.x, e.ints(0, 0), e.ints(*shape_of(a.x)[2:]), e.ints(2, 3), e.ints(*a.stride))


@spells(aten.pad.default)
def pad(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if a.mode not in _PAD_MODES:
        raise ExportError(f"padding '{a.mode}' in '{path_of(node)}' cannot be written as ONNX", source=path_of(node))
    missing = [0] * (2 * len(shape_of(node)) - len(a.pad))
    widths = [*reversed(a.pad[::2]), *reversed(a.pad[1::2])]
    half = len(missing) // 2
    before, after = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    amounts = e.ints(*missing[:half], *before, *missing[:half], *after)
    return e.op("Pad", a.self, amounts, *([a.value] if a.value else []), mode=_PAD_MODES[a.mode])


@spells(ops.insert_zeros)
def insert_zeros(e: Emitter, node: fx.Node) -> str:
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
