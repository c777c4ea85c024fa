"""The manifest, manifest.json: the files of a bundle, the model, and the errors measured at export.

The manifest and the graphs are bound to each other. The manifest has the hash of every file. Every graph has, in its
metadata, the digest of the rest of the manifest. So a manifest with other labels or another resize is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from bcos_sdk.contract import MOST_RANKS, GraphPrecision, InputSpec, Probability
from bcos_sdk.errors import InputError

__all__ = [
    "MOST_CLASSES",
    "MOST_LAYERS",
    "MOST_SIZES",
    "SCHEMA_VERSION",
    "FileRecord",
    "LayerParity",
    "LayerRecord",
    "LayersRecord",
    "Manifest",
    "ModelRecord",
    "Parity",
    "SizeRecord",
    "binding_digest",
]

SCHEMA_VERSION = 2
MOST_CLASSES = 1_000_000
MOST_SIZES = 16
_LARGEST_LIMIT = 0.1
"""The largest limit that an export uses. Larger ones would make the self-test meaningless."""


def binding_digest(document: dict[str, Any]) -> str:
    """The SHA-256 of the manifest without `files`, in canonical form: sorted keys, ASCII, no spaces.

    It is computed from the JSON document as written, so that a later version with more optional keys gives the same.
    """
    bound = {key: value for key, value in document.items() if key != "files"}
    return hashlib.sha256(json.dumps(bound, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _inside_the_bundle(name: str) -> str:
    path = PurePosixPath(name)
    odd = "\\" in name or "\0" in name or str(path) != name
    if odd or not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} does not name a file inside the bundle")
    return name


FileName = Annotated[str, AfterValidator(_inside_the_bundle)]
Text = Annotated[str, Field(max_length=1000)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Version = Annotated[int, Field(ge=1, le=10_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FileRecord(_Record):
    """The size and hash of one file."""

    sha256: Sha256
    size: NonNegativeInt


class ModelRecord(_Record):
    """Which network was exported: its name, its Python class, and the hash of its weights before export."""

    name: Text
    module: Text
    weights_sha256: Sha256


class Parity(_Record):
    """Errors against autograd in float64 at one batch size: the largest over all probe images and targets.

    Errors of logits, weights and contributions are relative in the 2-norm. Errors of bias and residual are relative to
    the scale of the certificate.
    """

    batch: PositiveInt
    targets: PositiveInt
    logits: float
    weights: float
    contributions: float
    bias: float
    residual: float


class LayerParity(_Record):
    """Errors of one layer against autograd in float64: the largest over probe images, queries, batch sizes and layouts.

    `residual` is that of its values, `residual_above` that of the logit from its features; None if it is not complete.
    """

    activations: float
    weights: float
    contributions: float
    residual: float
    features: float
    residual_above: float | None


class LayerRecord(_Record):
    """One inner layer that can be explained, and through which logits can be explained."""

    path: Text
    """The path of the module in the network."""
    kind: Text
    """The class of the module."""
    shape: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = Field(min_length=1, max_length=3)
    """The shape of its output for one image: [channels, height, width], [tokens, channels] or [channels]."""
    explain_graph: FileName
    explain_rows_graph: FileName
    bias_terms: tuple[Text, ...] = Field(max_length=10_000)
    """The bias terms of its values, in the order of the output `bias_terms`."""
    complete: bool
    """Whether every live path from the image to the logits passes it. Otherwise it explains a share of each logit."""
    bias_above: tuple[Text, ...] = Field(max_length=10_000)
    """The bias terms that enter above it; empty if there are none, or if it is not complete."""
    parity: LayerParity

    @property
    def channels(self) -> int:
        return self.shape[0] if len(self.shape) == 3 else self.shape[-1]

    @property
    def positions(self) -> tuple[int, ...]:
        """Height and width of the map, the number of tokens, or nothing for one vector."""
        return self.shape[1:] if len(self.shape) == 3 else self.shape[:-1]


MOST_LAYERS = 16


class LayersRecord(_Record):
    """The layers of a bundle and the graphs that they share."""

    features_graph: FileName
    """Image → logits and the output of each layer."""
    relay_graph: FileName
    """Image and targets → the explanation, and how much each activation of each layer adds to the logit."""
    relay_rows_graph: FileName
    golden: FileName
    layers: tuple[LayerRecord, ...] = Field(min_length=1, max_length=MOST_LAYERS)

    @property
    def graphs(self) -> tuple[str, ...]:
        own = (self.features_graph, self.relay_graph, self.relay_rows_graph)
        return (*own, *(name for one in self.layers for name in (one.explain_graph, one.explain_rows_graph)))


class SizeRecord(_Record):
    """A further size of the input: what replaces the fields of the manifest with the same names. Weights are shared."""

    input: InputSpec
    classes: int = Field(ge=1, le=MOST_CLASSES)
    map: tuple[Count, Count, Count] | None
    ranks: int = Field(ge=1, le=MOST_RANKS)
    bias_terms: tuple[Text, ...] = Field(max_length=10_000)
    predict_graph: FileName
    explain_graph: FileName
    explain_rows_graph: FileName
    golden: FileName
    parity: tuple[Parity, ...] = Field(max_length=1000)
    parity_limits: dict[str, Annotated[float, Field(gt=0, le=_LARGEST_LIMIT)]]

    @property
    def graphs(self) -> tuple[str, ...]:
        return self.predict_graph, self.explain_graph, self.explain_rows_graph


class Manifest(_Record):
    """Everything that is needed to run a bundle and to verify its files."""

    schema_version: Literal[2] = 2
    model: ModelRecord
    input: InputSpec
    classes: int = Field(ge=1, le=MOST_CLASSES)
    """The number of classes; of a map, the number of its values."""
    map: tuple[Count, Count, Count] | None = None
    """Classes, height and width if the network returns a map: logits are its values in this order. A manifest of a
    network without a map has no such key."""
    labels: tuple[Text, ...] | None
    """The name of every class; None if the classes have no names."""
    probability: Probability
    bias_terms: tuple[Text, ...] = Field(max_length=10_000)
    """The names of the terms of b(x), in the order of the output `bias_terms`."""
    ranks: int = Field(ge=1, le=MOST_RANKS)
    """The largest r of the target −r."""
    max_batch: int = Field(ge=1, le=65_536)
    """The largest batch that was checked at export. A client computes at most this many images × targets at once."""
    precision: GraphPrecision = "fp32"
    """Precision of convolutions and matrix products. Everything else is computed in float32."""
    float_layers: tuple[Text, ...] = Field(default=(), max_length=100_000)
    """The layers of an fp16 bundle that stay in float32, because they exceed the limits in fp16."""
    tolerance: float = Field(gt=0, le=1)
    """Largest |residual| / scale of a complete explanation."""
    predict_graph: FileName
    explain_graph: FileName
    explain_rows_graph: FileName | None = None
    """The explain graph in the layout ROWS, which OpenVINO runs; None in bundles of older versions."""
    weights: FileName
    """The external data of the graphs, which share it."""
    golden: FileName
    opset: Version
    ir_version: Version
    versions: dict[Text, Text] = Field(max_length=1000)
    rewrites: dict[Text, NonNegativeInt] = Field(max_length=1000)
    """How often each simplification of the graphs was applied."""
    parity: tuple[Parity, ...] = Field(max_length=1000)
    parity_limits: dict[str, Annotated[float, Field(gt=0, le=_LARGEST_LIMIT)]]
    """The largest errors that the export accepted. The self-test of a device uses them."""
    layers: LayersRecord | None = None
    """The inner layers that can be explained. A bundle without them has no such key."""
    more_sizes: tuple[SizeRecord, ...] = Field(default=(), max_length=MOST_SIZES - 1)
    """Further sizes of the input. A bundle with one size has no such key."""
    files: dict[FileName, FileRecord] = {}
    """Size and hash of every other file of the bundle; empty until the bundle is finished."""

    @model_validator(mode="after")
    def _names_fit_the_numbers(self) -> Self:
        if self.map is not None and math.prod(self.map) != self.classes:
            raise ValueError(
                f"'classes' is {self.classes}, but the map {list(self.map)} has {math.prod(self.map)} values"
            )
        named = self.classes if self.map is None else self.map[0]
        if self.labels is not None and len(self.labels) != named:
            raise ValueError(f"there are {len(self.labels)} labels for {named} classes")
        if self.ranks > self.classes:
            raise ValueError(f"'ranks' is {self.ranks}, but there are {self.classes} classes")
        if len(set(self.bias_terms)) != len(self.bias_terms):
            raise ValueError("two bias terms have the same name")
        if len(set(self.input_sizes)) != len(self.input_sizes):
            raise ValueError("two sizes of the input are equal")
        paths = [layer.path for layer in self.layer_records]
        if len(set(paths)) != len(paths):
            raise ValueError("two layers have the same path")
        return self

    @model_serializer(mode="wrap")
    def _without_what_the_network_lacks(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = serialize(self)
        for key in ("layers", "map", "more_sizes"):
            if not document.get(key):
                document.pop(key, None)
        return document

    @property
    def layer_records(self) -> tuple[LayerRecord, ...]:
        return () if self.layers is None else self.layers.layers

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of all ONNX graphs."""
        own = (self.predict_graph, self.explain_graph, self.explain_rows_graph)
        further = (name for one in self.more_sizes for name in one.graphs)
        return (*(name for name in own if name), *(() if self.layers is None else self.layers.graphs), *further)

    @property
    def goldens(self) -> tuple[str, ...]:
        """The names of all golden records."""
        of_layers = () if self.layers is None else (self.layers.golden,)
        return (self.golden, *of_layers, *(one.golden for one in self.more_sizes))

    @property
    def input_sizes(self) -> tuple[tuple[int, int], ...]:
        """The sizes of the input, height and width, that were compared with torch. The first is the default."""
        return (self.input.size, *(one.input.size for one in self.more_sizes))

    def at_size(self, size: tuple[int, int]) -> Manifest:
        """The manifest for another of its sizes; an `InputError` if there is no such size."""
        if size == self.input.size:
            return self
        for one in self.more_sizes:
            if one.input.size == size:
                return self.model_copy(update={name: getattr(one, name) for name in SizeRecord.model_fields})
        known = ", ".join(f"{height}x{width}" for height, width in self.input_sizes)
        raise InputError(
            f"this model was not exported for an input of {size[0]}x{size[1]}",
            source="input_size",
            hint=f"Its sizes are {known}. Choose one of these, or export it with --input-size {known},…",
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the named axes of the contract's ports."""
        depth, height, width = self.input.shape
        pixels = {"image channels": depth, "height": height, "width": width}
        return {**pixels, "classes": self.classes, "bias_terms": len(self.bias_terms)}

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole manifest. Equal digests mean equal graphs, weights, labels and preprocessing."""
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    def to_json(self) -> str:
        """Return indented JSON with sorted keys, so that equal manifests give equal text."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
