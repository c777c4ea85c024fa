"""The messages of the Open Inference Protocol over gRPC: `inference.GRPCInferenceService`, as bytes of protobuf.

Only the fields that this client needs are written and read. So it needs no protobuf package: Triton's client and Ray
want different versions of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._open_inference import DATATYPES
from bcos_sdk._protobuf import Value, field, fields, integers
from bcos_sdk._untrusted import typed_errors
from bcos_sdk.backends._graph import Arrays, TensorSpec
from bcos_sdk.backends.remote._transport import ModelConfig, ModelMetadata, Port
from bcos_sdk.errors import ServerAnswerError, shown

__all__ = ["METHODS", "infer_request", "model_request", "read_config", "read_infer", "read_metadata"]

METHODS = {name: f"/inference.GRPCInferenceService/{name}" for name in ("ModelMetadata", "ModelConfig", "ModelInfer")}
_DTYPES = {protocol: np.dtype(name) for name, protocol in DATATYPES.items()}


def model_request(model: str) -> bytes:
    """A ModelMetadataRequest or a ModelConfigRequest."""
    return field(1, model)


def infer_request(model: str, inputs: Arrays, outputs: Mapping[str, TensorSpec]) -> bytes:
    """A ModelInferRequest with the tensors as raw bytes."""
    parts = [field(1, model)]
    parts += [field(5, _input(name, array)) for name, array in inputs.items()]
    parts += [field(6, field(1, name)) for name in outputs]
    parts += [
        field(7, np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()) for array in inputs.values()
    ]
    return b"".join(parts)


def _input(name: str, array: npt.NDArray[Any]) -> bytes:
    shape = b"".join(field(3, side) for side in array.shape)
    return field(1, name) + field(2, DATATYPES[array.dtype.name]) + shape


def read_metadata(message: bytes) -> ModelMetadata:
    """A ModelMetadataResponse."""
    with typed_errors(_invalid):
        inputs: dict[str, Port] = {}
        outputs: dict[str, Port] = {}
        for number, value in fields(memoryview(message)):
            if number in (4, 5):
                name, datatype, shape = _tensor(_bytes(value))
                (inputs if number == 4 else outputs)[name] = datatype, shape
        return ModelMetadata(inputs, outputs)


def read_config(message: bytes) -> ModelConfig:
    """The largest batch and the parameters with text in a ModelConfigResponse."""
    with typed_errors(_invalid):
        max_batch = 0
        parameters: dict[str, str] = {}
        for config in _all(memoryview(message), 1):
            for number, value in fields(config):
                if number == 4 and isinstance(value, int):
                    max_batch = value
                elif number == 14:  # an entry of a map
                    entry = _bytes(value)
                    name = "".join(_text(one) for one in _all(entry, 1))
                    parameters[name] = "".join(_text(text) for one in _all(entry, 2) for text in _all(one, 1))
        return ModelConfig(max_batch, parameters)


def read_infer(message: bytes, outputs: Mapping[str, TensorSpec]) -> tuple[Arrays, dict[str, str]]:
    """The wanted outputs in a ModelInferResponse, and its parameters with text."""
    with typed_errors(_invalid):
        view = memoryview(message)
        described = [_tensor(one) for one in _all(view, 5)]
        raw = list(_all(view, 6))
        if len(raw) != len(described):
            raise ValueError(f"it has {len(described)} outputs and {len(raw)} raw contents")
        arrays: Arrays = {}
        for (name, datatype, shape), contents in zip(described, raw, strict=True):
            if name in outputs:
                arrays[name] = _array(name, datatype, shape, contents)
        parameters = {
            "".join(map(_text, _all(entry, 1))): "".join(_text(text) for one in _all(entry, 2) for text in _all(one, 3))
            for entry in _all(view, 4)
        }
        return arrays, parameters


def _array(name: str, datatype: str, shape: tuple[int, ...], contents: memoryview) -> npt.NDArray[Any]:
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise ValueError(f"{shown(name)} has the datatype {shown(datatype)}")
    if min(shape, default=0) < 0 or len(contents) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{shown(name)} has {len(contents)} bytes, its shape is {shown(shape)}")
    return np.frombuffer(contents, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _tensor(message: memoryview) -> tuple[str, str, tuple[int, ...]]:
    """Name, datatype and shape: the fields 1, 2 and 3 of all messages that describe a tensor."""
    name = datatype = ""
    shape: list[int] = []
    for number, value in fields(message):
        if number == 1:
            name = _text(_bytes(value))
        elif number == 2:
            datatype = _text(_bytes(value))
        elif number == 3:
            shape += [side - (1 << 64) if side >= 1 << 63 else side for side in integers(value)]
    return name, datatype, tuple(shape)


def _all(message: memoryview, number: int) -> Iterator[memoryview]:
    """The bytes of every field with this number."""
    return (_bytes(value) for found, value in fields(message) if found == number)


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a field is a number, expected bytes")
    return value


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8")


def _invalid(reason: str) -> ServerAnswerError:
    return ServerAnswerError(f"the server sent no message of the Open Inference Protocol: {reason}")
