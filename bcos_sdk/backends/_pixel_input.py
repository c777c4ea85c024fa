"""The variant of a graph that takes uint8 pixels [B, H, W, channels] and encodes them itself.

An encoded image has 8 times the bytes of its pixels, and a batch crosses the bus to the GPU. The variant looks each
level up in the table of `images.encode`, so that it computes the same bits as the client on every device.

Images that were passed encoded have no exact pixels, so the variant takes them as well. No value of theirs is negative:

    image = encoded where encoded ≥ 0, else the encoding of the pixels

A batch is in one of the two inputs. The other gets one blank image, which is broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import EditableGraph, InputShapes, Node, constant, node
from bcos_sdk.contract import IMAGE, PIXELS_INPUT
from bcos_sdk.images import LEVELS

__all__ = [
    "ENCODED",
    "PIXELS",
    "Encoding",
    "blank_image",
    "pixel_encoding",
    "pixel_shapes",
    "with_only_pixels",
    "with_pixel_input",
]

PIXELS = PIXELS_INPUT
ENCODED = "encoded"
"""The inputs that replace the image."""
_FLOAT, _UINT8, _INT32 = 1, 2, 6  # types in onnx.proto


@dataclass(frozen=True)
class Encoding:
    """How pixels become the channels of an encoded image."""

    channels: int
    """Channels of the pixels."""
    complement: bool
    """Whether 1 − level follows for each of them."""


_ENCODINGS = {"rgb+complement": Encoding(3, complement=True)}


def pixel_encoding(channels: str) -> Encoding | None:
    """The encoding that the manifest names `channels`; None if images of this kind are not made from 8-bit pixels."""
    return _ENCODINGS.get(channels)


def pixel_shapes(images: InputShapes, encoding: Encoding) -> InputShapes:
    """The shapes of the inputs of the variant, from those of the graph. The usual image has pixels."""
    shapes: InputShapes = {}
    for name, (smallest, usual, largest) in images.items():
        if name == IMAGE.name:
            pixels = [(batch, *sides, encoding.channels) for batch, _, *sides in (smallest, usual, largest)]
            shapes[PIXELS] = (pixels[0], pixels[1], pixels[2])
            shapes[ENCODED] = (smallest, smallest, largest)
        else:
            shapes[name] = (smallest, usual, largest)
    return shapes


def blank_image(name: str, sample: tuple[int, ...]) -> npt.NDArray[Any]:
    """One image for the input that has none of a batch. `sample` is its shape without the batch axis."""
    return np.zeros((1, *sample), np.uint8) if name == PIXELS else np.full((1, *sample), -1, np.float32)


def with_pixel_input(contents: bytes, encoding: Encoding) -> bytes:
    """The ONNX file with the inputs `pixels` and `encoded` in place of `image`."""
    graph = EditableGraph(contents)
    _, channels, height, width = graph.dimensions(IMAGE.name)
    zero = f"{PIXELS}/zero"
    choose = [
        node("Less", [ENCODED, zero], f"{PIXELS}/is_blank"),
        node("Where", [f"{PIXELS}/is_blank", f"{PIXELS}/image", ENCODED], IMAGE.name),
    ]
    _prepend(graph, encoding, f"{PIXELS}/image", choose, {zero: constant(zero, np.zeros(1, np.float32))})
    # Each has a batch axis of its own, because one of them is broadcast.
    graph.replace_input(
        IMAGE.name,
        {
            PIXELS: (_UINT8, (f"batch_of_{PIXELS}", height, width, encoding.channels)),
            ENCODED: (_FLOAT, (f"batch_of_{ENCODED}", channels, height, width)),
        },
    )
    return graph.contents()


def with_only_pixels(contents: bytes, encoding: Encoding) -> bytes:
    """The ONNX file with the input `pixels` in place of `image`: it takes no encoded images."""
    graph = EditableGraph(contents)
    batch, _, height, width = graph.dimensions(IMAGE.name)
    _prepend(graph, encoding, IMAGE.name)
    graph.replace_input(IMAGE.name, {PIXELS: (_UINT8, (batch, height, width, encoding.channels))})
    return graph.contents()


def _prepend(
    graph: EditableGraph,
    encoding: Encoding,
    output: str,
    after: Sequence[Node] = (),
    tensors: Mapping[str, bytes] | None = None,
) -> None:
    """Compute the encoded image `output` from `pixels`, then the nodes `after`, before all other nodes."""
    prefix = f"{PIXELS}/"
    levels, one = f"{prefix}levels", f"{prefix}one"
    colours = f"{prefix}colours" if encoding.complement else output
    # TensorRT converts uint8 to float types only.
    nodes = [
        node("Cast", [PIXELS], f"{prefix}as_float", to=_FLOAT),
        node("Cast", [f"{prefix}as_float"], f"{prefix}places", to=_INT32),
        node("Transpose", [f"{prefix}places"], f"{prefix}planes", perm=[0, 3, 1, 2]),
        node("Gather", [levels, f"{prefix}planes"], colours, axis=0),
    ]
    added = {levels: constant(levels, LEVELS), **(tensors or {})}
    if encoding.complement:
        added[one] = constant(one, np.ones(1, np.float32))
        nodes += [
            node("Sub", [one, colours], f"{prefix}complement"),
            node("Concat", [colours, f"{prefix}complement"], output, axis=1),
        ]
    nodes += after
    taken = {name for present in graph.nodes for name in present.outputs} | set(graph.tensors)
    assert not taken & {name for new in nodes for name in new.outputs}, "the graph takes pixels already"
    graph.nodes = [*nodes, *graph.nodes]
    graph.tensors |= added
