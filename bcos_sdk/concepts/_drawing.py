"""Explain and draw the examples of concepts, one direction at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
from PIL import Image, ImageDraw

from bcos_sdk import pictures
from bcos_sdk.client import Client, Position
from bcos_sdk.concepts._places import field_around, field_side
from bcos_sdk.concepts._records import Concept, Concepts, Example, LayerConcepts
from bcos_sdk.contract import Box, Channels
from bcos_sdk.images import source_path
from bcos_sdk.results import Explained, Failure, LayerExplanation

__all__ = ["DrawnDirection", "DrawnExample", "draw_concepts"]

_PERCENTILE = 99.9
_PIXELS_PER_WINDOW = 24
_BLUE = (0, 150, 255)


@dataclass(frozen=True)
class DrawnExample:
    """An example, its explanations and its two pictures."""

    example: Example
    value: LayerExplanation
    """The explanation of the value by pixels."""
    explained: Explained
    """The explanation of the class by pixels."""
    image: Image.Image
    """The image with a box where the direction is active."""
    weights: Image.Image
    """W from the image to the value, in B-cos colours on white, cut to the field of the value."""


@dataclass(frozen=True)
class DrawnDirection:
    """A direction with its drawn examples, and the images that could not be explained any more."""

    layer: LayerConcepts
    number: int
    concept: Concept
    """The direction with fields and certificates of its examples."""
    drawn: tuple[DrawnExample, ...]
    failures: tuple[Failure, ...]


def draw_concepts(client: Client, concepts: Concepts, side: int = 224) -> Iterator[DrawnDirection]:
    """Explain each example by pixels and draw it: pictures of about `side` pixels. One direction is in memory."""
    for layer in concepts.layers:
        for number, concept in enumerate(layer.concepts, 1):
            yield _draw(client, concepts, layer, number, concept, side)


def _draw(
    client: Client, concepts: Concepts, layer: LayerConcepts, number: int, concept: Concept, side: int
) -> DrawnDirection:
    paths = [source_path(one.source) for one in concept.examples]
    positions: list[Position] = [one.position for one in concept.examples]
    values = client.explain_layer(
        paths,
        layer=layer.layer,
        direction=np.array(concept.vector, np.float32),
        position=positions,
        on_error="return",
    )
    wholes = client.explain(paths, targets=[concepts.target], weights=True, on_error="return")
    good: list[tuple[Example, LayerExplanation, Explained]] = []
    failures: list[Failure] = []
    for example, value, whole in zip(concept.examples, values, wholes, strict=True):
        if isinstance(value, Failure):
            failures.append(value)
        elif isinstance(whole, Failure):
            failures.append(whole)
        else:
            good.append((example, value, whole))
    field = field_side([(value.contributions, example.cell) for example, value, _ in good])
    channels = client.manifest.input.channels
    drawn = tuple(_example(*one, field, concepts.input, side, channels) for one in good)
    finished = concept.model_copy(update={"examples": tuple(one.example for one in drawn)})
    return DrawnDirection(layer, number, finished, drawn, tuple(failures))


def _example(
    example: Example,
    value: LayerExplanation,
    whole: Explained,
    field: int | None,
    size: tuple[int, int],
    side: int,
    channels: Channels,
) -> DrawnExample:
    value.require_complete()
    box = None if field is None or example.cell is None else field_around(example.cell, field, size)
    example = example.model_copy(
        update={
            "value": value.value,
            "predicted": whole.prediction.classes[0].label,
            "field": box,
            "completeness": value.completeness,
        }
    )
    window = max(1, round((field or min(size)) / _PIXELS_PER_WINDOW))
    colours = pictures.rgba(
        value.weights, value.contributions, smooth=window, percentile=_PERCENTILE, channels=channels
    )
    weights = pictures.on_white(pictures.to_picture(colours))
    if box is not None:
        weights = weights.crop((int(box[0]), int(box[1]), int(box[2]), int(box[3])))
    factor = max(1, ceil(side / max(weights.size)))
    enlarged = (weights.width * factor, weights.height * factor)
    sampling = Image.Resampling.NEAREST if factor > 2 else Image.Resampling.BICUBIC
    image = Image.fromarray(value.display).convert("RGB")
    _draw_box(image, box or example.cell, size)
    return DrawnExample(example, value, whole, image, weights.resize(enlarged, sampling))


def _draw_box(image: Image.Image, box: Box | None, size: tuple[int, int]) -> None:
    if box is not None:
        across, down = image.width / size[1], image.height / size[0]
        corners = (box[0] * across, box[1] * down, box[2] * across - 1, box[3] * down - 1)
        width = max(2, round(min(image.size) / 56))
        pen = ImageDraw.Draw(image)
        pen.rectangle(corners, outline="white", width=width + 2)
        pen.rectangle(tuple(c + d for c, d in zip(corners, (1, 1, -1, -1), strict=True)), outline=_BLUE, width=width)
