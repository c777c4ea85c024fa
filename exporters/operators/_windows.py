"""Helpers for sliding windows, shared by convolutions and pools."""

from __future__ import annotations

from typing import Any

from bcos_sdk.exporters.program import pair

__all__ = ["Pair", "output_padding", "spell_window", "unreached"]

Pair = tuple[int, int]


def unreached(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)) -> Pair:
    """The number of rows and columns at the end of the padded input that no window reaches, because of the stride."""
    rows, columns = ((size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) % stride[i] for i in range(2))
    return rows, columns


def spell_window(stride: Any, padding: Any, dilation: Any = 1) -> dict[str, list[int]]:
    """The ONNX attributes of a sliding window, with explicit pads on all sides."""
    return {"strides": [*pair(stride)], "pads": [*pair(padding)] * 2, "dilations": [*pair(dilation)]}


def output_padding(left: Pair) -> dict[str, list[int]]:
    """The ONNX attribute `output_padding`, if a stride has left rows or columns unreached."""
    return {"output_padding": [*left]} if any(left) else {}
