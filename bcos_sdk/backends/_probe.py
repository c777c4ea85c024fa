"""The probe of a device: a convolution, a transposed convolution and a matrix product, compared with float64.

These are the operators of a network that need cuDNN and cuBLAS on a GPU. The ONNX model is written here byte by byte,
because running a bundle does not need the package onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._graph import TensorSpec
from bcos_sdk.contract import IMAGE, Precision

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


class Outcome(NamedTuple):
    """Why a device cannot be used; or, without a problem, the precision of its products."""

    problem: str | None
    precision: Precision | None = None


def probe_image() -> Array:
    """The input of the model."""
    return _random(0, 1, 6, _SIDE, _SIDE)


def judge(outputs: Mapping[str, Array]) -> Outcome:
    """Compare the outputs with float64. Products of float32 may be rounded to TF32; larger errors are wrong results."""
    errors = {}
    for name, truth in _truth().items():
        found = np.asarray(outputs[name], np.float64)
        error = np.linalg.norm(found - truth) / np.linalg.norm(truth) if found.shape == truth.shape else np.inf
        if not error <= _TF32_ERROR:  # also if it is NaN
            return Outcome(f"it computes wrong results: the error of a {name.replace('_', ' ')} is {error:.0e}")
        errors[name] = float(error)
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


def probe_model() -> bytes:
    """The ONNX model (opset 18): one image to three products."""
    window = {"strides": [1, 1], "pads": [1, 1, 1, 1]}
    doubled = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    nodes = [
        _node("Conv", "w1", _CONV, window),
        _node("ConvTranspose", "w2", _TRANSPOSED, doubled),
        _node("MatMul", "w3", _MATMUL, {}),
    ]
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, b"probe")
    graph += b"".join(_field(5, _tensor(name, array)) for name, array in _filters().items())
    graph += _field(11, _value(IMAGE.name, probe_image().shape))
    graph += b"".join(_field(12, _value(name, spec.shape)) for name, spec in PROBE_SPECS.items())
    return _field(1, 10) + _field(7, graph) + _field(8, _field(1, b"") + _field(2, 18))


def _node(operator: str, weights: str, output: str, attributes: Mapping[str, list[int]]) -> bytes:
    written = _field(1, IMAGE.name.encode()) + _field(1, weights.encode()) + _field(2, output.encode())
    written += _field(3, output.encode()) + _field(4, operator.encode())
    for name, values in attributes.items():
        numbers = b"".join(_field(8, value) for value in values)
        written += _field(5, _field(1, name.encode()) + numbers + _field(20, 7))  # 7: a list of integers
    return written


def _tensor(name: str, array: Array) -> bytes:
    sides = b"".join(_field(1, side) for side in array.shape)
    return sides + _field(2, 1) + _field(8, name.encode()) + _field(9, array.astype("<f4").tobytes())  # 1: float32


def _value(name: str, shape: tuple[int, ...]) -> bytes:
    sides = b"".join(_field(1, _field(1, side)) for side in shape)
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, 1) + _field(2, sides)))


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: its key, and an integer, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; the highest bit says that another byte follows."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
