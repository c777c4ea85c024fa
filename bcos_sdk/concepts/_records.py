"""What a search for concepts finds: directions of layers, and the images that activate each most."""

from __future__ import annotations

from typing import Literal

from bcos_sdk.contract import Box
from bcos_sdk.results import Completeness, Failure, Record

__all__ = ["Concept", "Concepts", "Example", "LayerConcepts"]


class Example(Record):
    """An image that activates a direction strongly, and where."""

    source: str
    """The path of the image."""
    predicted: str
    """The most likely class of the image."""
    value: float
    """⟨direction, activation⟩ at the position: the largest of the image."""
    position: tuple[int, ...]
    """(y, x) of the layer's map, (token,) of a sequence, or () for a single vector."""
    cell: Box | None = None
    """The part of the network's input that the position stands for; None if positions have no place in the image."""
    field: Box | None = None
    """The part of the input that most of the value comes from, if it is smaller than the input."""
    completeness: Completeness | None = None
    """The certificate of the value's explanation by pixels; None if it was not explained."""


class Concept(Record):
    """A direction of unit length in the channels of a layer, and the images that activate it most."""

    vector: tuple[float, ...]
    source: str
    """The image whose activation, divided by its length, is the direction."""
    position: tuple[int, ...]
    """Where in that image."""
    contribution: float
    """How much the activation at this position adds to the logit of the class in that image."""
    logit: float
    """The logit of the class in that image."""
    class_counts: dict[str, int]
    """The predicted classes of the `counted` images that activate the direction most, most frequent first."""
    counted: int
    examples: tuple[Example, ...]
    """Largest value first."""


class LayerConcepts(Record):
    """The directions of one layer that speak for the class, largest contribution first."""

    layer: str
    partial: bool
    """Whether a path goes round the layer, so that contributions are a share of the logit."""
    candidates: int
    """The number of images whose strongest position was a candidate."""
    cosine_limit: float
    """No two directions have a larger cosine."""
    concepts: tuple[Concept, ...]


class Concepts(Record):
    """The result of a search over a folder of images: for each layer, the directions that speak for one class."""

    schema_version: Literal[1] = 1
    model: str
    digest: str
    """The SHA-256 of the bundle's manifest."""
    input: tuple[int, int]
    """Height and width of the network's input. Boxes are in its pixels."""
    target: int
    label: str
    images: int
    """The number of images that were searched, without those that failed."""
    predicted: int
    """How many of them the model takes for the class."""
    layers: tuple[LayerConcepts, ...]
    failures: tuple[Failure, ...] = ()
