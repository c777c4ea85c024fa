"""Rewrite where the tensors of an ONNX file have their external data."""

from __future__ import annotations

from collections.abc import Callable

from bcos_sdk.bundle._protobuf import Value, field, fields

__all__ = ["move_external_data"]

# Numbers of fields in onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_EXTERNAL_DATA, _KEY, _VALUE = 7, 5, 13, 1, 2


def move_external_data(contents: bytes, *, location: str, start: int) -> bytes:
    """Return the file with all external data at `location`, and `start` added to every offset."""

    def entry(message: memoryview) -> bytes:
        parts = dict(fields(message))
        key, value = (bytes(parts[number]) for number in (_KEY, _VALUE))
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


def _mapped(message: memoryview, number: int, change: Callable[[memoryview], bytes]) -> bytes:
    """The message with `change` applied to each field of this number."""

    def value_of(place: int, value: Value) -> Value | bytes:
        return change(value) if place == number and not isinstance(value, int) else value

    return b"".join(field(place, value_of(place, value)) for place, value in fields(message))
