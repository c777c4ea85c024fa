"""Change the nodes of an ONNX file that has passed the gate, without the onnx package.

Only the changed parts are written anew. Everything else keeps its bytes. The numbers are those of the fields in
`onnx.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bcos_sdk._protobuf import Value, fields, integers
from bcos_sdk._protobuf import field as encoded

__all__ = ["EditableGraph", "Node", "constant", "node"]

_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_NODE_INPUT = 1
_GRAPH = 7
_SIGNED = 1 << 64
_TYPES = {np.dtype(np.float32): 1, np.dtype(np.int64): 7}
_INT, _INTS = 2, 7  # values of AttributeProto.AttributeType


@dataclass(frozen=True)
class Node:
    """A node, with the bytes that it has or will have in the file. Attributes hold integers only; others are absent."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str
    ints: dict[str, tuple[int, ...]] = field(compare=False)
    raw: bytes = field(repr=False, compare=False)


def node(operator: str, inputs: Sequence[str], output: str, **ints: int | Sequence[int]) -> Node:
    """A new node with one output, which is also its name. An attribute is an integer or a list of integers."""
    raw = b"".join(encoded(1, name) for name in inputs) + encoded(2, output) + encoded(3, output) + encoded(4, operator)
    for name, value in ints.items():
        values = [value] if isinstance(value, int) else value
        kind, number = (_INT, 3) if isinstance(value, int) else (_INTS, 8)
        body = encoded(1, name) + b"".join(encoded(number, one % _SIGNED) for one in values) + encoded(20, kind)
        raw += encoded(5, body)
    return _node(memoryview(raw))


def constant(name: str, array: npt.NDArray[np.float32] | npt.NDArray[np.int64]) -> bytes:
    """A tensor that lies inside the file."""
    sides = b"".join(encoded(1, side) for side in array.shape)
    return sides + encoded(2, _TYPES[array.dtype]) + encoded(8, name) + encoded(9, array.tobytes())


class EditableGraph:
    """The graph of an ONNX file: its nodes in order, its inputs and the tensors that it holds."""

    def __init__(self, contents: bytes) -> None:
        self._model = [(number, _whole(value)) for number, value in fields(memoryview(contents))]
        (graph,) = (value for number, value in self._model if number == _GRAPH)
        assert not isinstance(graph, int)
        parts = [(number, value) for number, value in fields(memoryview(graph)) if not isinstance(value, int)]
        self.nodes = [_node(value) for number, value in parts if number == _NODE]
        self.tensors = {_text(value, 8): bytes(value) for number, value in parts if number == _INITIALIZER}
        self.inputs = {_text(value, 1): bytes(value) for number, value in parts if number == _INPUT}
        self._rest = [(number, bytes(value)) for number, value in parts if number not in (_NODE, _INITIALIZER, _INPUT)]

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor that the graph holds, inside the file or outside."""
        message = memoryview(self.tensors[tensor])
        return tuple(side for number, value in fields(message) if number == 1 for side in integers(value))

    def integers_of(self, tensor: str) -> tuple[int, ...] | None:
        """The values of an int64 tensor inside the file; None if there is no such tensor."""
        parts = dict(fields(memoryview(self.tensors.get(tensor, b""))))
        raw = parts.get(9)
        if parts.get(2) != 7 or raw is None or isinstance(raw, int):
            return None
        return struct.unpack(f"<{len(raw) // 8}q", raw)

    def dimensions(self, name: str) -> tuple[int | str, ...]:
        """The shape of an input. A size that varies is a name."""
        (kind,) = (value for number, value in fields(memoryview(self.inputs[name])) if number == 2)
        sides = [part for part in _path(kind, 1, 2) if part[0] == 1]
        found = [dict(fields(value)) for _, value in sides if not isinstance(value, int)]
        return tuple(one[1] if isinstance(one.get(1), int) else bytes(one[2]).decode() for one in found)  # type: ignore[misc]

    def replace_input(self, old: str, new: Mapping[str, tuple[int, Sequence[int | str]]]) -> None:
        """Declare other inputs in the place of `old`. Each has an element type of onnx.proto and a shape."""
        declared: dict[str, bytes] = {}
        for name, value in self.inputs.items():
            declared |= {one: _input(one, *new[one]) for one in new} if name == old else {name: value}
        self.inputs = declared

    def rename_reads(self, old: str, new: str) -> None:
        """Let every node that reads the value `old` read the value `new`."""
        self.nodes = [_reading(one, old, new) if old in one.inputs else one for one in self.nodes]

    def keep_outputs(self, names: Iterable[str]) -> None:
        """Declare only those outputs of the graph whose names are given. The nodes stay."""
        kept = set(names)
        self._rest = [one for one in self._rest if one[0] != _OUTPUT or _text(memoryview(one[1]), 1) in kept]

    def remove_unused(self, outputs: Iterable[str] = ()) -> None:
        """Remove nodes whose results are all among `outputs` and read by nobody, and what only they read."""
        removable = set(outputs)
        while True:
            read = {name for one in self.nodes for name in one.inputs}
            dead = [one for one in self.nodes if set(one.outputs) <= removable and not set(one.outputs) & read]
            self.nodes = [one for one in self.nodes if one not in dead]
            lost = {name for one in dead for name in one.inputs} - {name for one in self.nodes for name in one.inputs}
            self.tensors = {name: value for name, value in self.tensors.items() if name not in lost}
            if not dead:
                return

    def contents(self) -> bytes:
        """The changed file."""
        graph = b"".join(encoded(_NODE, one.raw) for one in self.nodes)
        graph += b"".join(encoded(number, value) for number, value in self._rest)
        graph += b"".join(encoded(_INITIALIZER, value) for value in self.tensors.values())
        graph += b"".join(encoded(_INPUT, value) for value in self.inputs.values())
        return b"".join(encoded(number, graph if number == _GRAPH else value) for number, value in self._model)


def _input(name: str, dtype: int, shape: Sequence[int | str]) -> bytes:
    sides = b"".join(encoded(1, encoded(1 if isinstance(side, int) else 2, side)) for side in shape)
    tensor = encoded(1, dtype) + encoded(2, sides)
    return encoded(1, name) + encoded(2, encoded(1, tensor))


def _node(message: memoryview) -> Node:
    parts = list(fields(message))
    texts = [(number, bytes(value).decode("utf-8")) for number, value in parts if number <= 4 and _is_bytes(value)]
    (operator,) = (text for number, text in texts if number == 4)
    return Node(
        operator,
        tuple(text for number, text in texts if number == 1),
        tuple(text for number, text in texts if number == 2),
        next((text for number, text in texts if number == 3), ""),
        dict(filter(None, (_ints(value) for number, value in parts if number == 5))),
        bytes(message),
    )


def _reading(one: Node, old: str, new: str) -> Node:
    """The node with the input `new` in the place of `old`."""
    parts = [
        encoded(number, new if number == _NODE_INPUT and bytes(value) == old.encode() else value)
        for number, value in fields(memoryview(one.raw))
        if not isinstance(value, int)
    ]
    return _node(memoryview(b"".join(parts)))


def _ints(message: Value) -> tuple[str, tuple[int, ...]] | None:
    """Name and values of an attribute that holds integers."""
    assert not isinstance(message, int)
    parts = list(fields(message))
    (kind,) = (value for number, value in parts if number == 20)
    if kind not in (_INT, _INTS):
        return None
    values = [one for number, value in parts if number in (3, 8) for one in integers(value)]
    return _text(message, 1), tuple(one - _SIGNED if one >= _SIGNED // 2 else one for one in values)


def _text(message: Value, wanted: int) -> str:
    assert not isinstance(message, int)
    (found,) = (value for number, value in fields(message) if number == wanted)
    assert not isinstance(found, int)
    return bytes(found).decode("utf-8")


def _path(message: Value, *numbers: int) -> list[tuple[int, Value]]:
    """The fields of the message that lies in the first field of each of these numbers."""
    for wanted in numbers:
        assert not isinstance(message, int)
        message = next(value for number, value in fields(message) if number == wanted)
    assert not isinstance(message, int)
    return list(fields(message))


def _is_bytes(value: Value) -> bool:
    return not isinstance(value, int)


def _whole(value: Value) -> Value | bytes:
    return value if isinstance(value, int) else bytes(value)
