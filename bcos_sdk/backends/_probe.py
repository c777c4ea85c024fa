"""The probe of a device: a convolution, a transposed convolution and a matrix product, compared with float64.

Where a device has products in fp16 only, the model casts the image to fp16 and the products back to float32.

These are the operators of a network that need cuDNN and cuBLAS on a GPU. The ONNX model is written here byte by byte,
because running a bundle does not need the package onnx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._graph import TensorSpec
from bcos_sdk.contract import IMAGE, GraphPrecision, Precision

__all__ = ["PROBE_SPECS", "Outcome", "judge", "probe_image", "probe_model"]

Array = npt.NDArray[Any]
_CONV, _TRANSPOSED, _MATMUL = "convolution", "transposed_convolution", "matrix_product"
_SIDE = 12
PROBE_SPECS = {
    _CONV: TensorSpec((1, 8, _SIDE, _SIDE), "float32"),
    _TRANSPOSED: TensorSpec((1, 8, 2 * _SIDE, 2 * _SIDE), "float32"),
    _MATMUL: TensorSpec((1, 6, _SIDE, 10), "float32"),
}
"""The outputs of the model."""
# Rounding factors to float32 gives a relative error of about 1e-7, to TF32 (11 significant bits) of about 2e-4.
_FP32_ERROR, _TF32_ERROR = 2e-5, 5e-3
# fp16 rounds factors as TF32 does, and also the products; sums of 72 of them may be in fp16 too.
_FP16_ERROR = 1e-2


class Outcome(NamedTuple):
    """Why a device cannot be used; or, without a problem, the precision of its products."""

    problem: str | None
    precision: Precision | None = None


def probe_image() -> Array:
    """The input of the model."""
    return _random(0, 1, 6, _SIDE, _SIDE)


def judge(outputs: Mapping[str, Array], precision: GraphPrecision = "fp32") -> Outcome:
    """Compare the outputs with float64. Products of float32 may be rounded to TF32; larger errors are wrong results."""
    largest = _FP16_ERROR if precision == "fp16" else _TF32_ERROR
    errors = {}
    for name, truth in _truth().items():
        found = np.asarray(outputs[name], np.float64)
        error = np.linalg.norm(found - truth) / np.linalg.norm(truth) if found.shape == truth.shape else np.inf
        if not error <= largest:  # also if it is NaN
            return Outcome(f"it computes wrong results: the error of a {name.replace('_', ' ')} is {error:.0e}")
        errors[name] = float(error)
    if precision == "fp16":
        return Outcome(None, "fp16")
    return Outcome(None, "fp32" if max(errors.values()) <= _FP32_ERROR else "tf32")


def _random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def _filters() -> dict[str, Array]:
    return {"w1": _random(1, 8, 6, 3, 3), "w2": _random(2, 6, 8, 3, 3), "w3": _random(3, _SIDE, 10)}


@cache
def _truth() -> dict[str, Array]:
    """The outputs in float64: sums over the taps of the filters, written out."""
    x = probe_image().astype(np.float64)
    w1, w2, w3 = (one.astype(np.float64) for one in _filters().values())
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    convolved: Any = 0
    spread = np.zeros((1, 8, 2 * _SIDE + 2, 2 * _SIDE + 2))
    for i in range(3):
        for j in range(3):
            convolved = convolved + np.einsum(
                "bihw,oi->bohw", padded[:, :, i : i + _SIDE, j : j + _SIDE], w1[:, :, i, j]
            )
            spread[:, :, i : i + 2 * _SIDE : 2, j : j + 2 * _SIDE : 2] += np.einsum("bihw,io->bohw", x, w2[:, :, i, j])
    return {_CONV: convolved, _TRANSPOSED: spread[:, :, 1:-1, 1:-1], _MATMUL: x @ w3}


# ----------------------------------------------------------------------------------------- the model as protocol buffer


_FLOAT, _HALF = 1, 10
"""ONNX's numbers of float32 and fp16."""


def probe_model(precision: GraphPrecision = "fp32") -> bytes:
    """The ONNX model (opset 18): one image to three products of this precision. Its input and outputs are float32."""
    half = precision == "fp16"
    window = {"strides": [1, 1], "pads": [1, 1, 1, 1]}
    doubled = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    image, suffix = ("image_half", "_half") if half else (IMAGE.name, "")
    nodes = [
        _node("Conv", [image, "w1"], _CONV + suffix, window),
        _node("ConvTranspose", [image, "w2"], _TRANSPOSED + suffix, doubled),
        _node("MatMul", [image, "w3"], _MATMUL + suffix, {}),
    ]
    if half:
        casts = [_node("Cast", [name + suffix], name, {"to": _FLOAT}) for name in PROBE_SPECS]
        nodes = [_node("Cast", [IMAGE.name], image, {"to": _HALF}), *nodes, *casts]
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, b"probe")
    graph += b"".join(_field(5, _tensor(name, array, half=half)) for name, array in _filters().items())
    graph += _field(11, _value(IMAGE.name, probe_image().shape))
    graph += b"".join(_field(12, _value(name, spec.shape)) for name, spec in PROBE_SPECS.items())
    return _field(1, 10) + _field(7, graph) + _field(8, _field(1, b"") + _field(2, 18))


def _node(operator: str, inputs: Sequence[str], output: str, attributes: Mapping[str, int | list[int]]) -> bytes:
    written = b"".join(_field(1, name.encode()) for name in inputs) + _field(2, output.encode())
    written += _field(3, output.encode()) + _field(4, operator.encode())
    for name, value in attributes.items():
        # The last field is the kind: 7 is a list of integers, 2 an integer.
        listed = isinstance(value, list)
        numbers = b"".join(_field(8, one) for one in value) if isinstance(value, list) else _field(3, value)
        written += _field(5, _field(1, name.encode()) + numbers + _field(20, 7 if listed else 2))
    return written


def _tensor(name: str, array: Array, *, half: bool) -> bytes:
    sides = b"".join(_field(1, side) for side in array.shape)
    numbers = array.astype("<f2" if half else "<f4").tobytes()
    return sides + _field(2, _HALF if half else _FLOAT) + _field(8, name.encode()) + _field(9, numbers)


def _value(name: str, shape: tuple[int, ...]) -> bytes:
    sides = b"".join(_field(1, _field(1, side)) for side in shape)
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, _FLOAT) + _field(2, sides)))


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: its key, and an integer, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; the highest bit says that another byte follows."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
