"""The inputs and outputs of a model on Triton: those of its graph, as the settings choose them."""

from __future__ import annotations

from dataclasses import dataclass

from bcos_sdk.backends import Encoding
from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import (
    EXPLAIN_INPUTS,
    EXPLAIN_OUTPUTS,
    IMAGE,
    PIXELS_INPUT,
    PREDICT_INPUTS,
    PREDICT_OUTPUTS,
    WEIGHTS,
    Channels,
    Layout,
    Port,
)
from bcos_sdk.errors import InputError

__all__ = ["Tensor", "input_tensors", "output_tensors", "wire_encoding"]

_DATA_TYPES = {"float32": "TYPE_FP32", "int64": "TYPE_INT64"}
_ENCODINGS: dict[Channels, Encoding] = {
    "rgb+complement": Encoding(3, complement=True),
    "rgb": Encoding(3, complement=False),
    "grey+complement": Encoding(1, complement=True),
    "grey": Encoding(1, complement=False),
}


@dataclass(frozen=True)
class Tensor:
    """One input or output. `dims` has no batch axis; −1 is a size that varies."""

    name: str
    data_type: str
    dims: tuple[int, ...]


def wire_encoding(channels: Channels) -> Encoding:
    """How the graph encodes 8-bit pixels; an `InputError` if the network does not take pictures."""
    if channels not in _ENCODINGS:
        raise InputError(
            "this model takes arrays, not pictures, so it cannot take 8-bit pixels",
            source="pixels",
            hint="Leave --pixels out.",
        )
    return _ENCODINGS[channels]


def input_tensors(manifest: Manifest, *, explains: bool, pixels: bool) -> list[Tensor]:
    """The inputs, in the order of the contract."""
    tensors = [_tensor(port, manifest) for port in (EXPLAIN_INPUTS if explains else PREDICT_INPUTS)]
    if not pixels:
        return tensors
    colours = wire_encoding(manifest.input.channels).channels
    taken = Tensor(PIXELS_INPUT, "TYPE_UINT8", (*manifest.input.size, colours))
    return [taken if one.name == IMAGE.name else one for one in tensors]


def output_tensors(manifest: Manifest, *, explains: bool, weights: bool) -> list[Tensor]:
    """The outputs, in the order of the contract."""
    ports = EXPLAIN_OUTPUTS if explains else PREDICT_OUTPUTS
    return [_tensor(port, manifest) for port in ports if weights or port is not WEIGHTS]


def _tensor(port: Port, manifest: Manifest) -> Tensor:
    axes = port.axes(Layout.GRID)[1:]
    dims = (axis if isinstance(axis, int) else manifest.sizes.get(axis, -1) for axis in axes)
    return Tensor(port.name, _DATA_TYPES[port.dtype], tuple(dims))
