"""The rules for matrix products, convolutions and pooling, added to the table of `walking_layers`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from support.walking_layers import as_tensor, executes

HALF_TOTALS: list[bool] = []
"""Not empty: sums of fp16 products have their running total in fp16, as some kernels of TensorRT have."""


@executes("MatrixMultiply")
def matrix_multiply(layer: Any, x: list[Any]) -> Tensor:
    sides = []
    for side, operation in zip(x, (layer.op0.name, layer.op1.name), strict=True):
        assert operation in ("NONE", "TRANSPOSE"), f"'{layer.name}' takes a {operation}, which no rule handles"
        sides.append(side.mT if operation == "TRANSPOSE" else side)
    return _summed_in_float(torch.matmul, *sides)


@executes("Convolution")
def convolution(layer: Any, x: list[Any]) -> Tensor:
    inputs = x[0].shape[1] // layer.num_groups
    kernel, bias = _kernel_and_bias(layer, x, (layer.num_output_maps, inputs))
    (top, left), (bottom, right) = layer.pre_padding, layer.post_padding
    padded = F.pad(x[0], (left, right, top, bottom))
    return _summed_in_float(F.conv2d, padded, kernel, bias, **_steps(layer))


@executes("Deconvolution")
def deconvolution(layer: Any, x: list[Any]) -> Tensor:
    kernel, bias = _kernel_and_bias(layer, x, (x[0].shape[1], layer.num_output_maps // layer.num_groups))
    whole = _summed_in_float(F.conv_transpose2d, x[0], kernel, bias, **_steps(layer))
    (top, left), (bottom, right) = layer.pre_padding, layer.post_padding
    return whole[:, :, top : whole.shape[2] - bottom, left : whole.shape[3] - right]


@executes("Pooling")
def pooling(layer: Any, x: list[Any]) -> Tensor:
    kind = layer.type.name
    assert kind in ("MAX", "AVERAGE"), f"'{layer.name}' pools by {kind}, which no rule handles"
    widths = _pool_widths(layer, x[0].shape[2:])
    if kind == "MAX":
        return _windows(F.pad(x[0], widths, value=-math.inf), layer).amax((-2, -1))
    (top, left), (bottom, right) = layer.pre_padding, layer.post_padding
    declared = (left, right, top, bottom)
    # Padding that rounding adds beyond the declared padding is never counted.
    excluded = [width - inner for width, inner in zip(widths, declared, strict=True)]
    inside = F.pad(torch.ones_like(x[0][:1, :1]), declared, value=0 if layer.average_count_excludes_padding else 1)
    counts = _windows(F.pad(inside, excluded), layer).sum((-2, -1))
    return _windows(F.pad(x[0], widths), layer).sum((-2, -1)) / counts


def _pool_widths(layer: Any, sizes: Sequence[int]) -> tuple[int, ...]:
    """Padding on the left, right, top and bottom; with sizes rounded up, enough for the last window."""
    rounding = {"EXPLICIT_ROUND_DOWN": math.floor, "EXPLICIT_ROUND_UP": math.ceil}[layer.padding_mode.name]
    widths = []
    for size, window, stride, before, after in zip(
        sizes, layer.window_size_nd, layer.stride_nd, layer.pre_padding, layer.post_padding, strict=True
    ):
        count = rounding((size + before + after - window) / stride) + 1
        widths.append((before, max(after, (count - 1) * stride + window - size - before)))
    return tuple(itertools.chain(*reversed(widths)))


def _windows(padded: Tensor, layer: Any) -> Tensor:
    (height, width), (down, right) = layer.window_size_nd, layer.stride_nd
    return padded.unfold(2, height, down).unfold(3, width, right)


def _kernel_and_bias(layer: Any, x: list[Any], channels: tuple[int, int]) -> tuple[Tensor, Tensor | None]:
    """The kernel and bias, which are attributes or inputs of the layer."""
    assert layer.padding_mode.name == "EXPLICIT_ROUND_DOWN", f"'{layer.name}' pads by {layer.padding_mode.name}"
    kernel, bias = (*x[1:], None, None)[:2]
    if kernel is None:
        kernel = as_tensor(layer.kernel, (*channels, *layer.kernel_size_nd))
    if bias is None and layer.bias.size:
        bias = as_tensor(layer.bias, (layer.num_output_maps,))
    assert kernel.shape == (*channels, *layer.kernel_size_nd)
    return kernel, bias


def _steps(layer: Any) -> dict[str, Any]:
    return {"stride": tuple(layer.stride_nd), "dilation": tuple(layer.dilation_nd), "groups": layer.num_groups}


def _summed_in_float(product: Callable[..., Tensor], *operands: Tensor | None, **options: Any) -> Tensor:
    """Multiply and sum fp16 in float32 and round once, as tensor cores do."""
    kept = operands[0].dtype if operands[0] is not None else None
    if kept == torch.float16 and HALF_TOTALS:
        return _summed_in_half(product, *operands, **options)
    assert all(operand is None or operand.dtype == kept for operand in operands), "operands of different types"
    return product(*(None if operand is None else operand.float() for operand in operands), **options).to(kept)


def _summed_in_half(product: Callable[..., Tensor], *operands: Tensor | None, **options: Any) -> Tensor:
    """Σ over pieces of 16 products, or of one channel if it has more; the total is rounded to fp16 after each."""
    x, weight, *bias = operands
    assert x is not None
    assert weight is not None
    assert not any(one is not None for one in bias), "in fp16 graphs the bias is added in float32"
    total, step, size = torch.zeros(()), 16, x.shape[-1]
    if product is not torch.matmul:
        step, size = max(1, 16 // weight[0, 0].numel()), x.shape[1]
    if options.get("groups", 1) > 1:
        return product(x.float(), weight.float(), **options).half()
    for start in range(0, size, step):
        piece = slice(start, start + step)
        if product is torch.matmul:
            pair = x[..., piece], weight[..., piece, :]
        else:
            pair = x[:, piece], weight[piece] if product is F.conv_transpose2d else weight[:, piece]
        total = (total + product(pair[0].float(), pair[1].float(), **options)).half().float()
    return total.half()
