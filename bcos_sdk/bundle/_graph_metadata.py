"""The metadata of an ONNX file: pairs of texts, read and added without the package onnx.

In protobuf terms they are the entries `metadata_props` of a ModelProto, each with a key and a value.
"""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._protobuf import field, fields

__all__ = ["add_metadata", "read_metadata"]

_METADATA_PROPS, _KEY, _VALUE = 14, 1, 2


def read_metadata(contents: memoryview) -> dict[str, str]:
    """The metadata of an ONNX file that has passed the gate. Of a key that occurs twice, the last value counts."""
    metadata: dict[str, str] = {}
    for number, entry in fields(contents):
        if number != _METADATA_PROPS or isinstance(entry, int):
            continue
        parts = {part: bytes(text).decode("utf-8") for part, text in fields(entry) if not isinstance(text, int)}
        metadata[parts.get(_KEY, "")] = parts.get(_VALUE, "")
    return metadata


def add_metadata(graph: Path, key: str, value: str) -> None:
    """Add an entry. In protobuf, fields that are appended to a message belong to it."""
    with graph.open("ab") as file:
        file.write(field(_METADATA_PROPS, field(_KEY, key) + field(_VALUE, value)))
