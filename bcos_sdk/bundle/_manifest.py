"""The manifest, manifest.json: the files of a bundle, the model, and the errors measured at export.

The manifest and the graphs are bound to each other. The manifest has the hash of every file. Every graph has, in its
metadata, the digest of the rest of the manifest. So a manifest with other labels or another resize is noticed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from bcos_sdk.contract import MOST_RANKS, GraphPrecision, InputSpec

__all__ = ["SCHEMA_VERSION", "FileRecord", "Manifest", "ModelRecord", "Parity", "binding_digest"]

SCHEMA_VERSION = 2
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


class Manifest(_Record):
    """Everything that is needed to run a bundle and to verify its files."""

    schema_version: Literal[2] = 2
    model: ModelRecord
    input: InputSpec
    classes: int = Field(ge=1, le=1_000_000)
    """The number of classes."""
    labels: tuple[Text, ...] | None
    """The name of every class; None if the classes have no names."""
    probability: Literal["sigmoid", "softmax"]
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
    files: dict[FileName, FileRecord] = {}
    """Size and hash of every other file of the bundle; empty until the bundle is finished."""

    @model_validator(mode="after")
    def _names_fit_the_numbers(self) -> Self:
        if self.labels is not None and len(self.labels) != self.classes:
            raise ValueError(f"there are {len(self.labels)} labels for {self.classes} classes")
        if self.ranks > self.classes:
            raise ValueError(f"'ranks' is {self.ranks}, but there are {self.classes} classes")
        if len(set(self.bias_terms)) != len(self.bias_terms):
            raise ValueError("two bias terms have the same name")
        return self

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the named axes of the contract's ports."""
        height, width = self.input.size
        return {"height": height, "width": width, "classes": self.classes, "bias_terms": len(self.bias_terms)}

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole manifest. Equal digests mean equal graphs, weights, labels and preprocessing."""
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    def to_json(self) -> str:
        """Return indented JSON with sorted keys, so that equal manifests give equal text."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
