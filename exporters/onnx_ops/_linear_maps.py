"""Convolutions and matrix products, forward and transposed."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters import _ops as ops
from bcos_sdk.exporters._emit import Emitter
from bcos_sdk.exporters._program import bind, shape_of
from bcos_sdk.exporters.onnx_ops._table import extra_padding, spells, unfold, window

aten = torch.ops.aten


@spells(aten.conv2d.default)
def conv2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    inputs = [a.input, a.weight] + ([] if a.bias is None else [a.bias])
    return e.op("Conv", *inputs, **window(a.stride, a.padding, a.dilation), group=a.groups)


@spells(aten.linear.default)
def linear(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    out = e.op("MatMul", a.input, e.op("Transpose", a.weight, perm=[1, 0]))
    return out if a.bias is None else e.op("Add", out, a.bias)


@spells(ops.conv_transpose)
def conv_transpose(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    sliding = window(a.stride, a.padding, a.dilation) | extra_padding(a.output_padding)
    return _folded(e, node, a.ct, "ConvTranspose", a.weight, **sliding, group=a.groups)


@spells(ops.flipped_conv)
def flipped_conv(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    weight = _flip(e, a.weight, a.groups)
    return _folded(e, node, a.ct, "Conv", weight, **window(1, a.padding, a.dilation), group=a.groups)


def _flip(e: Emitter, weight: fx.Node, groups: int) -> str:
    """As `ops.flip`, in operators on a constant: runtimes fold them when they load the graph."""
    outputs, inputs, height, width = shape_of(weight)
    turned = e.value(weight)
    if groups == 1:
        turned = e.op("Transpose", turned, perm=[1, 0, 2, 3])
    elif inputs > 1 or outputs > groups:
        turned = e.op("Reshape", turned, e.ints(groups, outputs // groups, inputs, height, width))
        turned = e.op("Transpose", turned, perm=[0, 2, 1, 3, 4])
        turned = e.op("Reshape", turned, e.ints(groups * inputs, outputs // groups, height, width))
    if (height, width) == (1, 1):
        return turned
    first, last = e.ints(-1, -1), e.ints(-height - 1, -width - 1)
    return e.op("Slice", turned, first, last, e.ints(2, 3), e.ints(-1, -1))


def _folded(e: Emitter, node: fx.Node, ct: fx.Node, kind: str, weight: Any, **attributes: Any) -> str:
    """[B, K, …] → [B·K, …] → the operator → [B, K, …]; rows need no folding."""
    if len(shape_of(ct)) == 4:
        return e.op(kind, ct, weight, **attributes)
    flat = e.op("Reshape", ct, e.ints(-1, *shape_of(ct)[2:]))
    return unfold(e, e.op(kind, flat, weight, **attributes), node)
