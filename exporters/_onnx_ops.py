"""One ONNX spelling per operator of a program.

Only what ONNX Runtime and TensorRT both take: no run-time axes, explicit pads, comparison masks in place of
indices. Cotangents are folded to [batch·targets, …] around convolutions, which know but one leading axis.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from onnx import TensorProto
from torch import fx

from bcos_sdk.exporters import _explain, _ops
from bcos_sdk.exporters._emit import EmitRule, Emitter
from bcos_sdk.exporters._program import bind, pair, shape_of

__all__ = ["RULES"]

aten = torch.ops.aten

RULES: dict[Any, EmitRule] = {}


def spells(*targets: Any) -> Callable[[EmitRule], EmitRule]:
    """Register how an operator is written."""

    def register(rule: EmitRule) -> EmitRule:
        for target in targets:
            assert target not in RULES, f"{target} is spelled twice"
            RULES[target] = rule
        return rule

    return register


def _unary(kind: str) -> EmitRule:
    return lambda e, node: e.op(kind, node.args[0])


def _binary(kind: str) -> EmitRule:
    return lambda e, node: e.op(kind, node.args[0], node.args[1])


for target, kind in {
    aten.abs.default: "Abs",
    aten.cos.default: "Cos",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.neg.default: "Neg",
    aten.reciprocal.default: "Reciprocal",
    aten.relu.default: "Relu",
    aten.sigmoid.default: "Sigmoid",
    aten.sin.default: "Sin",
    aten.sqrt.default: "Sqrt",
    aten.tanh.default: "Tanh",
}.items():
    RULES[target] = _unary(kind)

for target, kind in {
    aten.add.Tensor: "Add",
    aten.div.Tensor: "Div",
    aten.gt.Scalar: "Greater",
    aten.gt.Tensor: "Greater",
    aten.matmul.default: "MatMul",
    aten.maximum.default: "Max",
    aten.minimum.default: "Min",
    aten.mul.Tensor: "Mul",
    aten.pow.Tensor_Tensor: "Pow",
    aten.sub.Tensor: "Sub",
}.items():
    RULES[target] = _binary(kind)


@spells(aten.detach.default)
def detach(e: Emitter, node: fx.Node) -> str:
    return e.value(node.args[0])


@spells(operator.getitem)
def getitem(e: Emitter, node: fx.Node) -> str:
    source, index = node.args
    return str(e.values[source][index])  # type: ignore[index]


@spells(aten.square.default)
def square(e: Emitter, node: fx.Node) -> str:
    return e.op("Mul", node.args[0], node.args[0])


@spells(aten.rsqrt.default)
def rsqrt(e: Emitter, node: fx.Node) -> str:
    return e.op("Reciprocal", e.op("Sqrt", node.args[0]))


@spells(aten.pow.Tensor_Scalar)
def power(e: Emitter, node: fx.Node) -> str:
    x, exponent = node.args
    if exponent == 2:
        return e.op("Mul", x, x)
    return e.op("Sqrt", x) if exponent == 0.5 else e.op("Pow", x, exponent)


@spells(aten.clamp_min.default)
def clamp_min(e: Emitter, node: fx.Node) -> str:
    return e.op("Max", node.args[0], node.args[1])


@spells(aten.softmax.int)
def softmax(e: Emitter, node: fx.Node) -> str:
    return e.op("Softmax", node.args[0], axis=node.args[1])


@spells(aten.where.self)
def where(e: Emitter, node: fx.Node) -> str:
    return e.op("Where", *node.args)


# ------------------------------------------------------------------------------------- linear maps


@spells(aten.conv2d.default)
def conv2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    inputs = [a.input, a.weight] + ([] if a.bias is None else [a.bias])
    return e.op("Conv", *inputs, **_window(a.stride, a.padding, a.dilation), group=a.groups)


def _window(stride: Any, padding: Any, dilation: Any) -> dict[str, list[int]]:
    pads = [*pair(padding)] * 2
    return {"strides": [*pair(stride)], "pads": pads, "dilations": [*pair(dilation)]}


@spells(aten.linear.default)
def linear(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    out = e.op("MatMul", a.input, e.op("Transpose", a.weight, perm=[1, 0]))
    return out if a.bias is None else e.op("Add", out, a.bias)


@spells(_ops.conv_transpose)
def conv_transpose(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    window = _window(a.stride, a.padding, a.dilation)
    extra = {"output_padding": [*a.output_padding]} if any(a.output_padding) else {}
    return _folded(e, node, a.ct, "ConvTranspose", a.weight, **window, **extra, group=a.groups)


@spells(_ops.flipped_conv)
def flipped_conv(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    weight = _flip(e, a.weight, a.groups)
    return _folded(e, node, a.ct, "Conv", weight, **_window(1, a.padding, a.dilation), group=a.groups)


def _flip(e: Emitter, weight: fx.Node, groups: int) -> str:
    """As `_ops.flip`, in operators on a constant: runtimes fold them when they load the graph."""
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
    """[B, K, …] → [B·K, …] → the operator → [B, K, …]."""
    flat = e.op("Reshape", ct, e.ints(-1, *shape_of(ct)[2:]))
    return _unfold(e, e.op(kind, flat, weight, **attributes), shape_of(node)[2:])


def _unfold(e: Emitter, flat: str, sample: tuple[int, ...]) -> str:
    return e.op("Reshape", flat, e.cotangent_shape(sample))


# -------------------------------------------------------------------------------------- reductions


def _reduce(kind: str) -> EmitRule:
    def rule(e: Emitter, node: fx.Node) -> str:
        a = bind(node)
        return e.op(kind, a.self, e.ints(*_positive(a.dim, a.self)), keepdims=int(a.keepdim))

    return rule


def _positive(dims: Any, node: fx.Node) -> list[int]:
    rank = len(shape_of(node))
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)]


RULES[aten.sum.dim_IntList] = _reduce("ReduceSum")
RULES[aten.mean.dim] = _reduce("ReduceMean")


@spells(aten.linalg_vector_norm.default)
def vector_norm(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    assert a.ord == 2, f"the {a.ord}-norm has no ONNX spelling here"
    return e.op("ReduceL2", a.self, e.ints(*_positive(a.dim, a.self)), keepdims=int(a.keepdim))


@spells(aten.var.correction)
def var(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _variance(e, a, a.correction)[0]


@spells(aten.var_mean.correction)
def var_mean(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    return _variance(e, a, a.correction)


@spells(aten.var_mean.dim)
def var_mean_dim(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    return _variance(e, a, int(a.unbiased))


def _variance(e: Emitter, a: Any, correction: float | None) -> list[str]:
    dims = _positive(a.dim, a.self)
    axes = e.ints(*dims)
    mean = e.op("ReduceMean", a.self, axes, keepdims=1)
    apart = e.op("Sub", a.self, mean)
    var = e.op("ReduceMean", e.op("Mul", apart, apart), axes, keepdims=int(a.keepdim))
    count = prod(shape_of(a.self)[dim] for dim in dims)
    correction = 1 if correction is None else correction
    if correction:
        var = e.op("Mul", var, count / (count - correction))
    return [var, mean if a.keepdim else e.op("Squeeze", mean, axes)]


@spells(aten.avg_pool2d.default)
def avg_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    pads = [*pair(a.padding)] * 2
    pooled = e.op(
        "AveragePool",
        a.self,
        kernel_shape=[*kernel],
        strides=[*pair(a.stride or kernel)],
        pads=pads,
        ceil_mode=int(a.ceil_mode),
        count_include_pad=int(a.count_include_pad),
    )
    return pooled if a.divisor_override is None else e.op("Mul", pooled, prod(kernel) / a.divisor_override)


@spells(_ops.avg_pool_transpose)
def avg_pool_transpose(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    flat = e.op("Reshape", a.ct, e.ints(-1, 1, *shape_of(a.ct)[3:]))
    weight = e.constant(torch.full((1, 1, *a.kernel), 1 / prod(a.kernel)), "average")
    left = _ops.unreached(a.size, a.kernel, a.stride, a.padding)
    extra = {"output_padding": [*left]} if any(left) else {}
    grown = e.op("ConvTranspose", flat, weight, **_window(a.stride, a.padding, 1), **extra)
    return _unfold(e, grown, shape_of(node)[2:])


@spells(_ops.repeat_average)
def repeat_average(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    channels, rows, columns = shape_of(a.ct)[2:]
    share = e.op("Mul", a.ct, 1 / prod(a.kernel))
    blocks = e.op("Reshape", share, e.ints(0, 0, channels, rows, 1, columns, 1))
    blocks = e.op("Expand", blocks, e.ints(1, 1, 1, 1, a.kernel[0], 1, a.kernel[1]))
    grown = e.op("Reshape", blocks, e.ints(0, 0, channels, rows * a.kernel[0], columns * a.kernel[1]))
    left = [a.size[0] - rows * a.kernel[0], a.size[1] - columns * a.kernel[1]]
    return e.op("Pad", grown, e.ints(*[0] * 8, *left)) if any(left) else grown


# ------------------------------------------------------------------------------------------ shapes


@spells(_ops.reshape_sample)
def reshape_sample(e: Emitter, node: fx.Node) -> str:
    return e.op("Reshape", node.args[0], e.ints(0, *shape_of(node)[1:]))


@spells(_ops.reshape_cotangent)
def reshape_cotangent(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if shape_of(a.ct) == shape_of(node):
        return e.value(a.ct)
    return e.op("Reshape", a.ct, e.ints(0, 0, *shape_of(node)[2:]))


@spells(_ops.spread)
def spread(e: Emitter, node: fx.Node) -> str:
    return e.op("Expand", node.args[0], e.ints(1, 1, *shape_of(node)[2:]))


@spells(aten.expand.default, aten.expand_as.default)
def expand(e: Emitter, node: fx.Node) -> str:
    return e.op("Expand", node.args[0], e.ints(1, *shape_of(node)[1:]))


@spells(aten.repeat_interleave.self_int)
def repeat_interleave(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    sample = list(shape_of(a.self))
    (axis,) = _positive(a.dim, a.self)
    apart = e.op("Unsqueeze", a.self, e.ints(axis + 1))
    repeated = e.op("Expand", apart, e.ints(*(a.repeats if i == axis + 1 else 1 for i in range(len(sample) + 1))))
    return e.op("Reshape", repeated, e.ints(0, *shape_of(node)[1:]))


@spells(aten.permute.default)
def permute(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Transpose", a.self, perm=_positive(a.dims, a.self))


@spells(aten.unsqueeze.default)
def unsqueeze(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Unsqueeze", a.self, e.ints(a.dim % len(shape_of(node))))


@spells(aten.cat.default)
def cat(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Concat", *a.tensors, axis=a.dim % len(shape_of(node)))


@spells(aten.slice.Tensor)
def slice_(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    (axis,) = _positive(a.dim, a.self)
    start, end, step = slice(a.start, a.end, a.step).indices(shape_of(a.self)[axis])
    return e.op("Slice", a.self, e.ints(start), e.ints(end), e.ints(axis), e.ints(step))


@spells(_ops.pick_every)
def pick_every(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Slice", a.x, e.ints(0, 0), e.ints(*shape_of(a.x)[2:]), e.ints(2, 3), e.ints(*a.stride))


@spells(aten.pad.default)
def pad(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    missing = [0] * (2 * len(shape_of(node)) - len(a.pad))
    widths = [*reversed(a.pad[::2]), *reversed(a.pad[1::2])]
    half = len(missing) // 2
    before, after = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    amounts = e.ints(*missing[:half], *before, *missing[:half], *after)
    return e.op("Pad", a.self, amounts, *([a.value] if a.value else []), mode=a.mode)


@spells(_ops.insert_zeros)
def insert_zeros(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    sample = list(shape_of(a.ct)[2:])
    count, at = sample[a.axis - 2], a.axis - 2
    grown, length = e.value(a.ct), count
    if a.step > 1:
        grown = e.op("Unsqueeze", grown, e.ints(a.axis + 1))
        zeros = [0] * (len(sample) + 3)
        grown = e.op("Pad", grown, e.ints(*zeros, *(a.step - 1 if i == a.axis + 1 else 0 for i in range(len(zeros)))))
        length = count * a.step
        grown = e.op("Reshape", grown, e.ints(0, 0, *sample[:at], length, *sample[at + 1 :]))
    after = a.size - a.start - length
    zeros = [0] * (len(sample) + 2)
    ends = [after if i == a.axis else 0 for i in range(len(zeros))]
    starts = [a.start if i == a.axis else 0 for i in range(len(zeros))]
    return e.op("Pad", grown, e.ints(*starts, *ends)) if a.start or after else grown


# -------------------------------------------------------------------------------- piecewise linear


@spells(_ops.keep_where)
def keep_where(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("Where", a.mask, a.ct, 0.0)


@spells(aten.max.dim)
def max_dim(e: Emitter, node: fx.Node) -> list[str]:
    a = bind(node)
    (axis,) = _positive(a.dim, a.self)
    largest = e.op("ReduceMax", a.self, e.ints(axis), keepdims=int(a.keepdim))
    return [largest, ""]


@spells(aten.amax.default)
def amax(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return e.op("ReduceMax", a.self, e.ints(*_positive(a.dim, a.self)), keepdims=int(a.keepdim))


@spells(_ops.is_first_largest)
def is_first_largest(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    return _first_largest(e, e.value(a.x), a.axis, shape_of(a.x))


def _first_largest(e: Emitter, x: str, axis: int, shape: tuple[int, ...]) -> str:
    steps = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - axis - 1))
    return e.op("Equal", e.op("ArgMax", x, axis=axis, keepdims=1), e.constant(steps, "steps"))


@spells(aten.max_pool2d.default)
def max_pool2d(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    kernel = pair(a.kernel_size)
    window = _window(a.stride or kernel, a.padding, a.dilation)
    return e.op("MaxPool", a.self, kernel_shape=[*kernel], **window, ceil_mode=int(a.ceil_mode))


@spells(_ops.window_winners)
def window_winners(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    (ph, pw), (sh, sw) = a.padding, a.stride
    rows, columns = shape_of(node)[-2:]
    lowest = torch.finfo(torch.float32).min
    padded = e.op("Pad", a.x, e.ints(0, 0, ph, pw, 0, 0, ph, pw), lowest) if ph or pw else e.value(a.x)
    windows = []
    for i in range(a.kernel[0]):
        for j in range(a.kernel[1]):
            ends = e.ints(i + (rows - 1) * sh + 1, j + (columns - 1) * sw + 1)
            window = e.op("Slice", padded, e.ints(i, j), ends, e.ints(2, 3), e.ints(sh, sw))
            windows.append(e.op("Unsqueeze", window, e.ints(2)))
    return _first_largest(e, e.op("Concat", *windows, axis=2), 2, shape_of(node))


@spells(_ops.scatter_windows)
def scatter_windows(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    count = prod(a.kernel)
    shares = e.op("Where", a.winners, e.op("Unsqueeze", a.ct, e.ints(3)), 0.0)
    flat = e.op("Reshape", shares, e.ints(-1, count, *shape_of(a.ct)[3:]))
    weight = e.constant(torch.eye(count).view(count, 1, *a.kernel), "windows")
    left = _ops.unreached(a.size, a.kernel, a.stride, a.padding)
    extra = {"output_padding": [*left]} if any(left) else {}
    grown = e.op("ConvTranspose", flat, weight, **_window(a.stride, a.padding, 1), **extra)
    return _unfold(e, grown, shape_of(node)[2:])


# ----------------------------------------------------------------------------------------- targets


@spells(_explain.resolve_targets)
def resolve_targets(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    ranks = min(shape_of(a.logits)[1], _explain.MOST_RANKS)
    ranked = e.pick("TopK", 1, a.logits, e.ints(ranks), axis=1)
    rank = e.op("Sub", e.op("Neg", a.targets), e.ints(1))
    by_rank = e.op("GatherElements", ranked, e.op("Max", rank, e.ints(0)), axis=1)
    return e.op("Where", e.op("Less", a.targets, e.ints(0)), by_rank, a.targets)


@spells(_explain.seed_cotangents)
def seed_cotangents(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    classes = e.op("Unsqueeze", a.classes, e.ints(2))
    unit = e.op("Cast", e.op("Equal", classes, e.ints(*range(a.count))), to=TensorProto.FLOAT)
    return e.op("Where", e.op("Equal", classes, e.ints(a.count)), 1 / a.count, unit)


@spells(_explain.stack_terms)
def stack_terms(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    if not a.terms:
        first = e.op("Slice", a.seed, e.ints(0), e.ints(1), e.ints(2))
        return e.op("Mul", first, 0.0)
    return e.op("Concat", *(e.op("Unsqueeze", term, e.ints(2)) for term in a.terms), axis=2)
