"""Tensors of the Open Inference Protocol v2: as JSON, or as bytes after the JSON (the binary tensor extension)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._open_inference import DATATYPES, DIGEST_PARAMETER, HEADER_LENGTH
from bcos_sdk.serve._faults import HttpError

__all__ = ["InferRequest", "read_request", "write_response"]

_DTYPES = {protocol: np.dtype(numpy).newbyteorder("<") for numpy, protocol in DATATYPES.items()}
_DATATYPES = {np.dtype(numpy): protocol for numpy, protocol in DATATYPES.items()}
_MOST_AXES = 8

Array = npt.NDArray[Any]


class InferRequest:
    """The tensors of a request, and which outputs it wants, each as JSON or as bytes."""

    def __init__(self, document: Mapping[str, Any], inputs: dict[str, Array]) -> None:
        self.id: str | None = document.get("id")
        self.inputs = inputs
        wanted = document.get("outputs") or []
        parameters = document.get("parameters") or {}
        if not isinstance(wanted, list) or not isinstance(parameters, dict):
            raise invalid("'outputs' must be a list and 'parameters' an object")
        if self.id is not None and not isinstance(self.id, str):
            raise invalid("'id' must be text")
        self._binary = parameters.get("binary_data_output") is True
        self._outputs = {_named(one): _parameters(one).get("binary_data", self._binary) is True for one in wanted}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the wanted outputs; empty for the default ones."""
        return tuple(self._outputs)

    def is_binary(self, output: str) -> bool:
        return self._outputs.get(output, self._binary)


def invalid(message: str) -> HttpError:
    return HttpError(400, "request_invalid", message)


def read_request(body: bytes, header_length: str | None) -> InferRequest:
    """Parse the body of an inference request. Every length is checked before anything is allocated."""
    size = len(body)
    if header_length is not None:
        if not (header_length.isdecimal() and len(header_length) < 12 and int(header_length) <= len(body)):
            raise invalid(f"{HEADER_LENGTH} must be a number of bytes up to the size of the body")
        size = int(header_length)
    try:
        document = json.loads(body[:size])
    except (ValueError, RecursionError):
        raise invalid("the request is no JSON document") from None
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise invalid("the request must be an object with a list 'inputs'")
    rest = memoryview(body)[size:]
    inputs: dict[str, Array] = {}
    for entry in document["inputs"]:
        name = _named(entry)
        if name in inputs:
            raise invalid(f"the input {name!r} is given twice")
        inputs[name], rest = _read_tensor(name, entry, rest)
    if len(rest):
        raise invalid(f"{len(rest)} bytes are left after the last tensor")
    return InferRequest(document, inputs)


def _named(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise invalid("each input and output must be an object with a 'name'")
    name: str = entry["name"]
    return name[:100]


def _parameters(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise invalid("'parameters' must be an object")
    return parameters


def _read_tensor(name: str, entry: Mapping[str, Any], rest: memoryview) -> tuple[Array, memoryview]:
    shape, dtype = entry.get("shape"), _DTYPES.get(str(entry.get("datatype")))
    if dtype is None:
        raise invalid(f"the datatype of {name!r} must be one of {', '.join(_DTYPES)}")
    sizes_are_valid = isinstance(shape, list) and all(type(one) is int and 0 <= one < 1 << 31 for one in shape)
    if not sizes_are_valid or len(shape or ()) > _MOST_AXES:
        raise invalid(f"the shape of {name!r} must be a list of sizes")
    assert shape is not None
    count = math.prod(shape)
    parameters = _parameters(entry)
    if any(key.startswith("shared_memory") for key in parameters):
        raise invalid("shared memory is not supported")
    size = parameters.get("binary_data_size")
    if size is None:
        return _from_json(name, entry.get("data"), shape, dtype), rest
    if type(size) is not int or size != count * dtype.itemsize or size > len(rest):
        raise invalid(f"{name!r} must have {count * dtype.itemsize} bytes of binary data, stated are {size!r}")
    values: Array = np.frombuffer(rest[:size], dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
    return values, rest[size:]


def _from_json(name: str, data: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A flat or nested list of numbers. Text and truth values are no numbers; NaN is refused by the caller's range."""
    try:
        found = np.array(data)
        kinds = "iu" if dtype.kind == "i" else "iuf"
        if found.dtype.kind not in kinds or found.size != math.prod(shape):
            raise ValueError
        return found.astype(dtype.newbyteorder("=")).reshape(shape)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise invalid(f"the data of {name!r} must be {math.prod(shape)} numbers") from None


def write_response(
    model: str, digest: str, request: InferRequest, outputs: Mapping[str, Array]
) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of the answer to an inference request. `digest` is that of the model's manifest."""
    described: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for name, array in outputs.items():
        entry: dict[str, Any] = {"name": name, "datatype": _DATATYPES[array.dtype], "shape": list(array.shape)}
        if request.is_binary(name):
            part = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            entry["parameters"] = {"binary_data_size": len(part)}
            binary.append(part)
        else:
            entry["data"] = array.ravel().tolist()
        described.append(entry)
    document: dict[str, Any] = {
        "model_name": model,
        "model_version": "1",
        "parameters": {DIGEST_PARAMETER: digest},
        "outputs": described,
    }
    if request.id is not None:
        document["id"] = request.id
    header = json.dumps(document, separators=(",", ":")).encode()
    if not binary:
        return header, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(header))}
    return b"".join([header, *binary]), headers
