"""Bodies of the Open Inference Protocol over HTTP: JSON, followed by the bytes of the tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._open_inference import DATATYPES, HEADER_LENGTH
from bcos_sdk._untrusted import parse_json, typed_errors
from bcos_sdk.backends._graph import Arrays, TensorSpec
from bcos_sdk.errors import ServerAnswerError, shown

__all__ = ["Body", "largest_answer", "read_answer", "write_request"]

Body = list["bytes | memoryview"]

_DTYPES = {protocol: np.dtype(name) for name, protocol in DATATYPES.items()}
_LARGEST_JSON = 1 << 20
_LARGEST_NUMBER = 32
"""Bytes of a number in JSON, with its comma."""
_MOST_AXES = 8


def write_request(inputs: Arrays, outputs: Mapping[str, TensorSpec], *, binary: bool) -> tuple[Body, dict[str, str]]:
    """The body of a request in parts, which are not copied, and its headers."""
    described: list[dict[str, Any]] = []
    parts: Body = []
    for name, array in inputs.items():
        entry: dict[str, Any] = {"name": name, "datatype": DATATYPES[str(array.dtype)], "shape": list(array.shape)}
        if binary:
            ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            entry["parameters"] = {"binary_data_size": ordered.nbytes}
            parts.append(ordered.reshape(-1).view(np.uint8).data)
        else:
            entry["data"] = array.ravel().tolist()
        described.append(entry)
    wanted = [{"name": name, "parameters": {"binary_data": binary}} for name in outputs]
    text = json.dumps({"inputs": described, "outputs": wanted}, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/octet-stream" if binary else "application/json"}
    if binary:
        headers[HEADER_LENGTH] = str(len(text))
    return [text, *parts], headers | {"Content-Length": str(sum(map(len, [text, *parts])))}


def largest_answer(outputs: Mapping[str, TensorSpec], *, binary: bool) -> int:
    """The most bytes that an answer with these outputs can have."""
    numbers = sum(math.prod(spec.shape) for spec in outputs.values())
    return _LARGEST_JSON + numbers * (8 if binary else _LARGEST_NUMBER)


def read_answer(
    body: bytes, header_length: str | None, outputs: Mapping[str, TensorSpec]
) -> tuple[Arrays, dict[str, str]]:
    """The outputs and the parameters of an answer. What is no answer of the protocol is a `ServerAnswerError`."""
    with typed_errors(_invalid):
        size = len(body)
        if header_length is not None:
            if not (header_length.isdecimal() and len(header_length) < 12 and int(header_length) <= len(body)):
                raise ValueError(f"its JSON has {shown(header_length)} of {len(body)} bytes")
            size = int(header_length)
        document = parse_json(body[:size])
        rest = memoryview(body)[size:]
        arrays: Arrays = {}
        for entry in document["outputs"]:
            array, rest = _read_tensor(entry, rest)
            if entry["name"] in outputs:
                arrays[entry["name"]] = array
        if len(rest):
            raise ValueError(f"{len(rest)} bytes are left after the last tensor")
        return arrays, texts_of(document.get("parameters"))


def texts_of(parameters: Any) -> dict[str, str]:
    """The parameters whose values are text or numbers, as text."""
    found = parameters if isinstance(parameters, dict) else {}
    return {str(name): str(value) for name, value in found.items() if isinstance(value, (str, int, float))}


def _read_tensor(entry: Any, rest: memoryview) -> tuple[npt.NDArray[Any], memoryview]:
    name, shape, dtype = entry["name"], entry["shape"], _DTYPES.get(str(entry["datatype"]))
    if dtype is None:
        raise ValueError(f"{shown(name)} has the datatype {shown(entry['datatype'])}")
    if len(shape) > _MOST_AXES or not all(type(one) is int and 0 <= one < 1 << 31 for one in shape):
        raise ValueError(f"{shown(name)} has the shape {shown(shape)}")
    count = math.prod(shape)
    size = (entry.get("parameters") or {}).get("binary_data_size")
    if size is None:
        values = np.array(entry["data"]).astype(dtype)
        if values.size != count:
            raise ValueError(f"{shown(name)} has {values.size} numbers, its shape has {count}")
        return values.reshape(shape), rest
    if size != count * dtype.itemsize or size > len(rest):
        raise ValueError(f"{shown(name)} has {shown(size)} bytes, its shape has {count * dtype.itemsize}")
    # A copy, because the caller owns the arrays, and each would keep the whole body alive.
    array = np.frombuffer(rest[:size], dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    return array, rest[size:]


def _invalid(reason: str) -> ServerAnswerError:
    return ServerAnswerError(f"the server sent no answer of the Open Inference Protocol: {reason}")
