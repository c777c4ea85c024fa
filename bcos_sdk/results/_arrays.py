"""The arrays of a result: read-only numpy in Python, {"dtype", "shape", "base64"} in JSON."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator, SerializationInfo, WithJsonSchema

from bcos_sdk.contract import CONTRIBUTIONS, WEIGHTS

__all__ = ["ARRAYS", "Arrays", "LayerArrays", "arrays_to_write", "equal_arrays"]

ARRAYS = "arrays"
"""Key of pydantic's serialization context; its value is "base64" or "omit"."""

Axes: TypeAlias = "tuple[int | str, ...]"

_DISPLAY = "display"
_OF_LAYERS = ("direction", "features", "activations")
_KINDS: dict[str, tuple[str, Axes]] = {
    CONTRIBUTIONS.name: (CONTRIBUTIONS.dtype, CONTRIBUTIONS.sample),
    WEIGHTS.name: (WEIGHTS.dtype, WEIGHTS.sample),
    "input": (WEIGHTS.dtype, WEIGHTS.sample),
    "direction": ("float32", ("channels of the layer",)),
    "features": ("float32", ("channels of the layer", "positions of the layer")),
    "activations": ("float32", ("channels of the layer", "positions of the layer")),
    "image": ("uint8", ("height", "width", 3)),
    _DISPLAY: ("uint8", ("height of the display", "width of the display", 3)),
}
"""The dtype and the axes of each array that a result may have. Names stand for sizes."""


def arrays_to_write(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays without the display: it is large, the same for all explanations of an image, and no result."""
    return {name: array for name, array in arrays.items() if name != _DISPLAY}


def equal_arrays(some: dict[str, npt.NDArray[Any]], others: dict[str, npt.NDArray[Any]]) -> bool:
    """Return whether both have the same names with equal arrays. Displays are not compared."""
    some, others = arrays_to_write(some), arrays_to_write(others)
    return some.keys() == others.keys() and all(np.array_equal(some[name], others[name]) for name in some)


def _validate(arrays: Any) -> dict[str, npt.NDArray[Any]]:
    """Return read-only arrays that belong to one image. Unknown names are dropped."""
    if not isinstance(arrays, dict):
        raise ValueError("expected a dictionary of arrays by name")
    known = {name: _read_only(name, value) for name, value in arrays.items() if name in _KINDS}
    sizes: dict[int | str, int] = {}
    for name, array in known.items():
        for axis, size in zip(_KINDS[name][1], array.shape, strict=True):
            expected = axis if isinstance(axis, int) else sizes.setdefault(axis, size)
            if size != expected or size == 0:
                raise ValueError(f"the arrays are not of one image: {name} has the shape {list(array.shape)}")
    _check_display(known)
    return known


def _check_display(arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Check that the display shows the image at a whole multiple of its size, as the maps are drawn over it."""
    if _DISPLAY in arrays and "image" in arrays:
        (height, width), (shown_height, shown_width) = arrays["image"].shape[:2], arrays[_DISPLAY].shape[:2]
        if shown_height % height or shown_width != width * (shown_height // height):
            raise ValueError(f"the display has {shown_height} × {shown_width} pixels, the image {height} × {width}")


def _read_only(name: str, value: Any) -> npt.NDArray[Any]:
    dtype, axes = _KINDS[name]
    array = _from_json(value) if isinstance(value, dict) else value
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != len(axes):
        raise ValueError(f"{name}: expected a {dtype} array with axes {_letters(axes)}")
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


def _from_json(value: dict[str, Any]) -> npt.NDArray[Any]:
    dtype, shape, text = value.get("dtype"), value.get("shape"), value.get("base64")
    if dtype not in ("float32", "uint8") or not isinstance(shape, list) or not isinstance(text, str):
        raise ValueError("expected the keys dtype, shape and base64")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"shape is {shape!r}, expected a list of sizes")
    try:
        contents = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    if math.prod(shape) * np.dtype(dtype).itemsize != len(contents):
        raise ValueError(f"{len(contents)} bytes do not make a {dtype} array of shape {shape}")
    return np.frombuffer(contents, np.dtype(dtype).newbyteorder("<")).reshape(shape).astype(dtype)


def _serialise(arrays: dict[str, npt.NDArray[Any]], info: SerializationInfo) -> dict[str, Any]:
    if (info.context or {}).get(ARRAYS) == "omit":
        return {}
    return {name: _to_json(array) for name, array in arrays_to_write(arrays).items()}


def _to_json(array: npt.NDArray[Any]) -> dict[str, Any]:
    little_endian = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    text = base64.b64encode(little_endian.tobytes()).decode("ascii")
    return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": text}


def _json_schema(dtype: str, axes: Axes) -> dict[str, Any]:
    size = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "description": f"Little-endian {dtype} in row-major order, axes {_letters(axes)}",
        "properties": {
            "dtype": {"const": dtype},
            "shape": {"type": "array", "items": size, "minItems": len(axes), "maxItems": len(axes)},
            "base64": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["dtype", "shape", "base64"],
    }


def _letters(axes: Axes) -> str:
    """A short form of the axes, for example 6HW."""
    return "".join(str(axis)[0].upper() for axis in axes)


def _schema(*left_out: str) -> WithJsonSchema:
    kinds = {name: _json_schema(*kind) for name, kind in _KINDS.items() if name not in (_DISPLAY, *left_out)}
    return WithJsonSchema({"type": "object", "properties": kinds})


Arrays: TypeAlias = Annotated[
    dict[str, npt.NDArray[Any]],
    PlainValidator(_validate),
    PlainSerializer(_serialise, when_used="json"),
    _schema(*_OF_LAYERS),
]
LayerArrays: TypeAlias = Annotated[
    dict[str, npt.NDArray[Any]],
    PlainValidator(_validate),
    PlainSerializer(_serialise, when_used="json"),
    _schema(),
]
"""The arrays of a result about a layer."""
