"""Refuse every ONNX file that the exporter cannot have written, before a runtime parses it.

Runtimes trust their input. An ONNX file can make them read foreign files or memory, or loop without end. So the gate
accepts only what the exporter emits: a flat graph of known operators, and tensors that lie inside the file or inside
the one weights file. Fields that it does not know are refused, since a runtime may know them.

The numbers are those of the fields in `onnx.proto`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcos_sdk._protobuf import Value, fields, integers
from bcos_sdk.bundle._external_data import TENSOR_TYPES
from bcos_sdk.contract import FOREIGN_OPERATORS, ONNX_OPERATORS

__all__ = ["LARGEST_GRAPH", "GateError", "check_graph"]

LARGEST_GRAPH = 256 << 20
"""Largest size in bytes of an ONNX file without its weights."""
_MOST_NODES = 100_000
_MOST_TENSORS = 100_000
_LARGEST_SIDE = 1 << 31
_OWN_DOMAINS = ("", "ai.onnx")
_EXTERNAL = 1


class GateError(ValueError):
    """The file contains something that no exported graph contains."""


def check_graph(contents: memoryview, *, weights: str, weights_size: int) -> None:
    """Raise a `GateError` unless the ONNX file could come from the exporter.

    `weights` is the only file that tensors may refer to, and `weights_size` is its size in bytes.
    """
    gate = _Gate(weights, weights_size)
    try:
        gate.model(contents)
    except GateError:
        raise
    except ValueError as error:
        raise GateError(f"it is not an ONNX file: {error}") from error


@dataclass
class _Gate:
    weights: str
    weights_size: int
    nodes: int = 0
    tensors: int = 0

    def model(self, message: memoryview) -> None:
        # ir_version, producer_name, producer_version, domain, model_version, doc_string, metadata_props
        self._check("the model", message, {7: self.graph, 8: self.opset}, ignored={1, 2, 3, 4, 5, 6, 14})

    def opset(self, message: memoryview) -> None:
        self._check("an operator set", message, {1: _refuse_domain}, ignored={2})

    def graph(self, message: memoryview) -> None:
        # name, doc_string, input, output, value_info
        self._check("the graph", message, {1: self.node, 5: self.tensor}, ignored={2, 10, 11, 12, 13})

    def node(self, message: memoryview) -> None:
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise GateError(f"it has more than {_MOST_NODES:,} nodes")
        # input, output, name, doc_string
        known = {4: _refuse_operator, 5: self.attribute, 7: _refuse_domain}
        self._check("a node", message, known, ignored={1, 2, 3, 6})

    def attribute(self, message: memoryview) -> None:
        # name, f, i, s, floats, ints, type; a graph, a tensor or a reference in an attribute is refused
        self._check("an attribute", message, {}, ignored={1, 2, 3, 4, 7, 8, 20})

    def tensor(self, message: memoryview) -> None:
        self.tensors += 1
        if self.tensors > _MOST_TENSORS:
            raise GateError(f"it has more than {_MOST_TENSORS:,} tensors")
        sides: list[int] = []
        found: dict[int, Value] = {}
        place: dict[str, str] = {}
        for number, value in fields(message):
            if number == 1:  # dims
                sides += integers(value)
            elif number == 13:  # external_data
                key, text = _entry(value)
                if key in place:
                    raise GateError(f"the place of a tensor has the key {key!r} twice")
                place[key] = text
            elif number in (2, 8, 9, 14):  # data_type, name, raw_data, data_location
                if number in found:
                    raise GateError(f"a tensor has the field {number} twice")
                found[number] = value
            else:
                raise GateError(f"a tensor has the field {number}, which no exported graph has")
        if any(side > _LARGEST_SIDE for side in sides):  # also if it is negative, because integers are unsigned here
            raise GateError(f"a tensor has the shape {sides}")
        kind = found.get(2)
        if not isinstance(kind, int) or kind not in TENSOR_TYPES:
            raise GateError(f"a tensor has the unknown data type {kind!r}")
        size = math.prod(sides) * np.dtype(TENSOR_TYPES[kind]).itemsize
        self._check_size(size, found.get(9), place, found.get(14, 0) == _EXTERNAL)

    def _check_size(self, size: int, raw: Value | None, place: dict[str, str], external: bool) -> None:
        """Check that a tensor of this size lies completely inside the file, or inside the weights file."""
        if not external:
            if place or isinstance(raw, int) or len(raw or b"") != size:
                raise GateError(f"a tensor of {size:,} bytes has other data")
            return
        if raw is not None or set(place) != {"location", "offset", "length"} or place["location"] != self.weights:
            raise GateError(f"a tensor refers to {place.get('location')!r}, expected {self.weights!r}")
        offset, length = place["offset"], place["length"]
        if not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in (offset, length)):
            raise GateError(f"a tensor is at offset {offset!r} with length {length!r}")
        if int(length) != size or int(offset) + size > self.weights_size:
            raise GateError(
                f"a tensor of {size:,} bytes is at offset {offset} with length {length}, "
                f"but {self.weights} has {self.weights_size:,} bytes"
            )

    def _check(
        self, where: str, message: memoryview, known: dict[int, Callable[[memoryview], None]], *, ignored: set[int]
    ) -> None:
        for number, value in fields(message):
            if number in known and not isinstance(value, int):
                known[number](value)
            elif number not in ignored:
                raise GateError(f"{where} has the field {number}, which no exported graph has")


def _refuse_operator(name: memoryview) -> None:
    if (operator := _text(name)) not in ONNX_OPERATORS | FOREIGN_OPERATORS:
        raise GateError(f"it has the operator {operator!r}, which no exported graph has")


def _refuse_domain(name: memoryview) -> None:
    if (domain := _text(name)) not in _OWN_DOMAINS:
        raise GateError(f"it has operators of the domain {domain!r}")


def _entry(value: Value) -> tuple[str, str]:
    """Key and value of a StringStringEntryProto."""
    if isinstance(value, int):
        raise GateError("the place of a tensor is a number")
    parts = [(number, text) for number, text in fields(value) if not isinstance(text, int)]
    if [number for number, _ in parts] != [1, 2]:
        raise GateError("the place of a tensor is not made of keys and values")
    return _text(parts[0][1]), _text(parts[1][1])


def _text(value: memoryview) -> str:
    return bytes(value[:200]).decode("utf-8")
