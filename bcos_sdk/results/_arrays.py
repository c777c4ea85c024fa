"""Arrays inside results: read-only numpy in Python, {"dtype", "shape", "base64"} in JSON."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator, SerializationInfo, WithJsonSchema

__all__ = ["ARRAYS", "Arrays", "equal_arrays"]

ARRAYS = "arrays"  # the key of the serialisation context: "base64" or "omit"

_KINDS = {"contributions": ("float32", "HW"), "weights": ("float32", "6HW"), "image": ("uint8", "HW3")}
"""The dtype and the axes of each array that a result may carry."""


def equal_arrays(some: dict[str, npt.NDArray[Any]], others: dict[str, npt.NDArray[Any]]) -> bool:
    return some.keys() == others.keys() and all(np.array_equal(some[name], others[name]) for name in some)


def _validate(arrays: Any) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(arrays, dict):
        raise ValueError("expected arrays by name")
    known = {name: _read_only(name, value) for name, value in arrays.items() if name in _KINDS}
    axes = {pair for name, array in known.items() for pair in zip(_KINDS[name][1], array.shape, strict=True)}
    sizes = {"6": 6, "3": 3, **dict(axes)}
    if len(sizes) < len(axes | {("6", 6), ("3", 3)}) or 0 in sizes.values():
        raise ValueError("the arrays are not of one image")
    return known


def _read_only(name: str, value: Any) -> npt.NDArray[Any]:
    dtype, axes = _KINDS[name]
    array = _from_json(value) if isinstance(value, dict) else value
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != len(axes):
        raise ValueError(f"{name}: expected a {dtype} array with axes {axes}")
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


def _from_json(value: dict[str, Any]) -> npt.NDArray[Any]:
    dtype, shape, text = value.get("dtype"), value.get("shape"), value.get("base64")
    if dtype not in ("float32", "uint8") or not isinstance(shape, list) or not isinstance(text, str):
        raise ValueError("expected dtype, shape and base64")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("a shape is a list of sizes")
    try:
        contents = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    if math.prod(shape) * np.dtype(dtype).itemsize != len(contents):
        raise ValueError(f"{len(contents)} bytes are no {dtype} array of shape {shape}")
    return np.frombuffer(contents, np.dtype(dtype).newbyteorder("<")).reshape(shape).astype(dtype)


def _serialise(arrays: dict[str, npt.NDArray[Any]], info: SerializationInfo) -> dict[str, Any]:
    if (info.context or {}).get(ARRAYS) == "omit":
        return {}
    return {name: _to_json(array) for name, array in arrays.items()}


def _to_json(array: npt.NDArray[Any]) -> dict[str, Any]:
    little_endian = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    text = base64.b64encode(little_endian.tobytes()).decode("ascii")
    return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": text}


def _json_schema(dtype: str, axes: str) -> dict[str, Any]:
    size = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "description": f"Little-endian {dtype} in row-major order, axes {axes}",
        "properties": {
            "dtype": {"const": dtype},
            "shape": {"type": "array", "items": size, "minItems": len(axes), "maxItems": len(axes)},
            "base64": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["dtype", "shape", "base64"],
    }


Arrays: TypeAlias = Annotated[
    dict[str, npt.NDArray[Any]],
    PlainValidator(_validate),
    PlainSerializer(_serialise, when_used="json"),
    WithJsonSchema({"type": "object", "properties": {name: _json_schema(*kind) for name, kind in _KINDS.items()}}),
]
