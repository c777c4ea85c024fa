"""The metadata of an ONNX file: pairs of texts, read and added without the package onnx.

In protobuf terms they are the entries `metadata_props` of a ModelProto, each with a key and a value.
"""

from __future__ import annotations

from pathlib import Path

from bcos_sdk.bundle._protobuf import fields, text_field

__all__ = ["add_metadata", "read_metadata"]

_METADATA_PROPS, _KEY, _VALUE = 14, 1, 2


def read_metadata(graph: Path) -> dict[str, str]:
    """The metadata of the file. Raise ValueError if it is not protobuf, or if a key occurs twice."""
    metadata: dict[str, str] = {}
    for number, entry in fields(memoryview(graph.read_bytes())):
        if number != _METADATA_PROPS or isinstance(entry, int):
            continue
        parts = {part: bytes(text).decode("utf-8") for part, text in fields(entry) if not isinstance(text, int)}
        key = parts.get(_KEY, "")
        if key in metadata:
            raise ValueError(f"the metadata has the key {key!r} twice")
        metadata[key] = parts.get(_VALUE, "")
    return metadata


def add_metadata(graph: Path, key: str, value: str) -> None:
    """Add an entry. In protobuf, fields that are appended to a message belong to it."""
    with graph.open("ab") as file:
        file.write(text_field(_METADATA_PROPS, text_field(_KEY, key) + text_field(_VALUE, value)))
