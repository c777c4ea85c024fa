"""The external data of an ONNX file that has passed the gate: find the tensors in it, or move it to another place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._protobuf import Value, field, fields, integers

__all__ = ["TENSOR_TYPES", "external_tensors", "move_external_data"]

TENSOR_TYPES: dict[int, npt.DTypeLike] = {
    1: np.float32,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
}
"""The data types that tensors of exported graphs may have, by their number in onnx.proto."""
# Numbers of fields in onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_EXTERNAL_DATA, _KEY, _VALUE = 7, 5, 13, 1, 2
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME = 1, 2, 8


def external_tensors(contents: bytes, weights: memoryview) -> dict[str, npt.NDArray[Any]]:
    """The tensors with external data by name, as arrays that share the memory of `weights`."""
    found = {}
    for graph in _nested(memoryview(contents), _MODEL_GRAPH):
        for tensor in _nested(graph, _GRAPH_INITIALIZER):
            place = dict(map(_entry, _nested(tensor, _TENSOR_EXTERNAL_DATA)))
            if place:
                parts = dict(fields(tensor))
                kind, name = parts[_TENSOR_TYPE], parts[_TENSOR_NAME]
                assert isinstance(kind, int)
                assert isinstance(name, memoryview)
                shape = [side for number, value in fields(tensor) if number == _TENSOR_DIMS for side in integers(value)]
                start = int(place[b"offset"])
                array: npt.NDArray[Any] = np.frombuffer(weights, TENSOR_TYPES[kind], math.prod(shape), start)
                found[bytes(name).decode("utf-8")] = array.reshape(shape)
    return found


def move_external_data(contents: bytes, *, location: str, start: int) -> bytes:
    """Return the file with all external data at `location`, and `start` added to every offset."""

    def entry(message: memoryview) -> bytes:
        key, value = _entry(message)
        if key == b"location":
            value = location.encode()
        elif key == b"offset":
            value = str(int(value) + start).encode()
        return field(_KEY, key) + field(_VALUE, value)

    def tensor(message: memoryview) -> bytes:
        return _mapped(message, _TENSOR_EXTERNAL_DATA, entry)

    def graph(message: memoryview) -> bytes:
        return _mapped(message, _GRAPH_INITIALIZER, tensor)

    return _mapped(memoryview(contents), _MODEL_GRAPH, graph)


def _nested(message: memoryview, number: int) -> Iterator[memoryview]:
    """The nested messages in the fields of this number."""
    return (value for place, value in fields(message) if place == number and not isinstance(value, int))


def _entry(message: memoryview) -> tuple[bytes, bytes]:
    """Key and value of a StringStringEntryProto."""
    parts = dict(fields(message))
    return bytes(parts[_KEY]), bytes(parts[_VALUE])


def _mapped(message: memoryview, number: int, change: Callable[[memoryview], bytes]) -> bytes:
    """The message with `change` applied to each field of this number."""

    def value_of(place: int, value: Value) -> Value | bytes:
        return change(value) if place == number and not isinstance(value, int) else value

    return b"".join(field(place, value_of(place, value)) for place, value in fields(message))
