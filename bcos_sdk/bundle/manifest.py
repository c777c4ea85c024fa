"""manifest.json: what a bundle holds, where it came from, and what was measured when it was made."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from bcos_sdk.contract import GraphPrecision, InputSpec

__all__ = ["SCHEMA_VERSION", "FileRecord", "Manifest", "ModelRecord", "Parity"]

SCHEMA_VERSION = 1


def _inside_the_bundle(name: str) -> str:
    path = PurePosixPath(name)
    odd = "\\" in name or "\0" in name or str(path) != name
    if odd or not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} does not name a file inside the bundle")
    return name


FileName = Annotated[str, AfterValidator(_inside_the_bundle)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRecord(_Record):
    """The size and hash of one file."""

    sha256: Sha256
    size: NonNegativeInt


class ModelRecord(_Record):
    """Which network this is: its name, its Python class, and the hash of its weights before any folding."""

    name: str
    module: str
    weights_sha256: Sha256


class Parity(_Record):
    """Distance from a float64 autograd oracle at one batch size, the worst over all probe images and targets.

    Relative in the 2-norm for logits, W(x) and contributions; for bias and residual relative to
    Σ|contribution| + Σ|bias|.
    """

    batch: PositiveInt
    targets: PositiveInt
    logits: float
    weights: float
    contributions: float
    bias: float
    residual: float


class Manifest(_Record):
    """All that is needed to run a bundle, and to trust it."""

    schema_version: Literal[1] = 1
    model: ModelRecord
    input: InputSpec
    classes: PositiveInt
    labels: tuple[str, ...] | None
    probability: Literal["sigmoid", "softmax"]
    bias_terms: tuple[str, ...]
    ranks: PositiveInt
    max_batch: PositiveInt
    precision: GraphPrecision = "fp32"
    """Of convolutions and matrix products; everything else is computed in float."""
    float_layers: tuple[str, ...] = ()
    """The layers of an fp16 bundle whose products stay in float, because in half the limits would not hold."""
    tolerance: PositiveFloat
    predict_graph: FileName
    explain_graph: FileName
    explain_rows_graph: FileName | None = None
    """The same for one target per image, or targets of one image: what OpenVINO runs, if the bundle has it."""
    weights: FileName
    golden: FileName
    opset: PositiveInt
    ir_version: PositiveInt
    versions: dict[str, str]
    rewrites: dict[str, NonNegativeInt]
    parity: tuple[Parity, ...]
    parity_limits: dict[str, PositiveFloat]
    files: dict[FileName, FileRecord]

    @property
    def sizes(self) -> dict[str, int]:
        """The named sizes of the contract's ports."""
        height, width = self.input.size
        return {"height": height, "width": width, "classes": self.classes, "bias_terms": len(self.bias_terms)}

    def to_json(self) -> str:
        """Always the same text for the same manifest."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
