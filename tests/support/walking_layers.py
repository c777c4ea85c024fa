"""One rule per kind of TensorRT layer: the computation that its documentation describes, in a few lines of torch.

A rule takes the layer and the values of its inputs (None for an input that is not connected). An attribute or mode
that the rule does not handle is an error. Enums are compared by name, so this file does not import TensorRT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Rule = Callable[[Any, list[Any]], Tensor | tuple[Tensor, ...]]
RULES: dict[str, Rule] = {}


def executes(kind: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES[kind] = rule
        return rule

    return register


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


ELEMENTWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "PROD": torch.mul,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
    "SUB": torch.sub,
    "DIV": _divide,
    "POW": torch.pow,
    "FLOOR_DIV": torch.floor_divide,
    "EQUAL": torch.eq,
    "GREATER": torch.gt,
    "LESS": torch.lt,
}
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "EXP": torch.exp,
    "LOG": torch.log,
    "SQRT": torch.sqrt,
    "RECIP": torch.reciprocal,
    "ABS": torch.abs,
    "NEG": torch.neg,
    "SIN": torch.sin,
    "COS": torch.cos,
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "RELU": torch.relu,
    "SIGMOID": torch.sigmoid,
    "TANH": torch.tanh,
}
REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "SUM": torch.sum,
    "AVG": torch.mean,
    "MAX": torch.amax,
}
TORCH_TYPES = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "INT64": torch.int64,
    "INT32": torch.int32,
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
}


@executes("Constant")
def constant(layer: Any, x: list[Any]) -> Tensor:
    return as_tensor(layer.weights, layer.shape)


@executes("ElementWise")
def elementwise(layer: Any, x: list[Any]) -> Tensor:
    a, b = x
    assert a.ndim == b.ndim, f"'{layer.name}' broadcasts ranks {a.ndim} and {b.ndim}, which TensorRT does not"
    assert a.dtype == b.dtype, f"'{layer.name}' mixes {a.dtype} and {b.dtype}"
    return ELEMENTWISE[layer.op.name](a, b)


@executes("Unary")
def unary(layer: Any, x: list[Any]) -> Tensor:
    return UNARY[layer.op.name](x[0])


@executes("Activation")
def activation(layer: Any, x: list[Any]) -> Tensor:
    # The subclass redefines `type`: here it is the activation function.
    return ACTIVATIONS[layer.type.name](x[0])


@executes("Cast")
def cast(layer: Any, x: list[Any]) -> Tensor:
    out: Tensor = x[0].to(TORCH_TYPES[layer.to_type.name])
    return out


@executes("Identity")
def identity(layer: Any, x: list[Any]) -> Tensor:
    out: Tensor = x[0]
    return out


@executes("Select")
def select(layer: Any, x: list[Any]) -> Tensor:
    condition, chosen, other = x
    assert condition.ndim == chosen.ndim == other.ndim
    return torch.where(condition, chosen, other)


@executes("Shape")
def shape(layer: Any, x: list[Any]) -> Tensor:
    return torch.tensor(x[0].shape, dtype=torch.int64)


@executes("Unsqueeze")
def unsqueeze(layer: Any, x: list[Any]) -> Tensor:
    out: Tensor = x[0]
    for axis in sorted(axis % (out.ndim + x[1].numel()) for axis in x[1].tolist()):
        out = out.unsqueeze(axis)
    return out


@executes("Squeeze")
def squeeze(layer: Any, x: list[Any]) -> Tensor:
    out: Tensor = x[0].squeeze(tuple(x[1].tolist()))
    assert out.ndim == x[0].ndim - x[1].numel(), f"'{layer.name}' squeezes an axis that is longer than 1"
    return out


@executes("Concatenation")
def concatenation(layer: Any, x: list[Any]) -> Tensor:
    return torch.cat(x, dim=layer.axis)


@executes("Shuffle")
def shuffle(layer: Any, x: list[Any]) -> Tensor:
    out = _transposed(x[0], layer.first_transpose)
    sizes = x[1].tolist() if len(x) > 1 else layer.reshape_dims
    if sizes is not None:
        if layer.zero_is_placeholder:
            sizes = [out.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
        out = out.reshape(tuple(sizes))
    return _transposed(out, layer.second_transpose)


@executes("Slice")
def slice_(layer: Any, x: list[Any]) -> Tensor:
    start, size, stride, fill, axes = _inputs_or(x, layer.start, layer.shape, layer.stride, None, layer.axes)
    out: Tensor = x[0]
    for axis, first, count, step in zip(axes or range(out.ndim), start, size, stride, strict=True):
        length = out.shape[axis]
        places = first + step * torch.arange(count)
        inside = (places >= 0) & (places < length)
        out = out.index_select(axis, _within(layer.mode.name, places, length, layer.name))
        if layer.mode.name == "FILL":
            mask = inside.view(-1, *[1] * (out.ndim - axis - 1))
            out = torch.where(mask, out, torch.tensor(0 if fill is None else fill, dtype=out.dtype))
    return out


def _within(mode: str, places: Tensor, length: int, name: str) -> Tensor:
    """Map positions outside the axis into it, according to the mode. For FILL the caller replaces the values."""
    if mode == "STRICT_BOUNDS":
        assert bool(((places >= 0) & (places < length)).all()), f"'{name}' slices out of bounds"
        return places
    if mode == "REFLECT":
        period = max(2 * (length - 1), 1)
        return length - 1 - (places % period - (length - 1)).abs()
    assert mode in ("CLAMP", "FILL"), f"'{name}' slices in mode {mode}, which no rule handles"
    return places.clamp(0, length - 1)


@executes("Gather")
def gather(layer: Any, x: list[Any]) -> Tensor:
    data, places = x
    assert layer.num_elementwise_dims == 0
    assert bool(((places >= 0) & (places < data.shape[layer.axis])).all()), f"'{layer.name}' gathers out of bounds"
    if layer.mode.name == "ELEMENT":
        return torch.gather(data, layer.axis, places)
    assert layer.mode.name == "DEFAULT", f"'{layer.name}' gathers in mode {layer.mode.name}, which no rule handles"
    around = data.shape[: layer.axis], data.shape[layer.axis + 1 :]
    out: Tensor = data.index_select(layer.axis, places.flatten()).reshape(*around[0], *places.shape, *around[1])
    return out


@executes("TopK")
def top_k(layer: Any, x: list[Any]) -> tuple[Tensor, Tensor]:
    (axis,) = _bits(layer.axes)
    count = int(x[1]) if len(x) > 1 else layer.k
    assert layer.op.name == "MAX"
    # ONNX orders equal values by position. TensorRT's documentation does not say.
    found = x[0].sort(dim=axis, descending=True, stable=True)
    places = found.indices.narrow(axis, 0, count).to(TORCH_TYPES[layer.indices_type.name])
    return found.values.narrow(axis, 0, count), places


@executes("Reduce")
def reduce(layer: Any, x: list[Any]) -> Tensor:
    return REDUCTIONS[layer.op.name](x[0], dim=_bits(layer.axes), keepdim=layer.keep_dims)


@executes("SoftMax")
def softmax(layer: Any, x: list[Any]) -> Tensor:
    (axis,) = _bits(layer.axes)
    return torch.softmax(x[0], dim=axis)


def as_tensor(stored: Any, sizes: Sequence[int]) -> Tensor:
    return torch.tensor(stored).reshape(tuple(sizes))


def _bits(mask: int) -> list[int]:
    """The axes of a bit mask."""
    axes = [axis for axis in range(mask.bit_length()) if mask >> axis & 1]
    assert axes, "the bit mask has no axis"
    return axes


def _transposed(value: Tensor, order: Sequence[int]) -> Tensor:
    """Permute the axes. TensorRT stores an order of eight axes for every rank."""
    return value.permute(tuple(order)[: value.ndim])


def _inputs_or(x: list[Any], *attributes: Any) -> list[Any]:
    """Each further input as plain numbers; the attribute where the input is not connected."""
    given = [*x[1:], *[None] * (len(attributes) + 1 - len(x))]
    return [attribute if value is None else value.tolist() for value, attribute in zip(given, attributes, strict=True)]
