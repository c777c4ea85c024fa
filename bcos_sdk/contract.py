"""The contract between an exported graph and the code that runs it.

Everything that the exporter writes into a graph and the runtime relies on is defined here, once: the graph's inputs
and outputs, the encoding of targets, the input of the network, and the scale and tolerance of the certificate.

An explain graph computes, for each image x and each target, one row of the dynamic weights W(x):

    logits        = W(x)·x + b(x)
    weights       = the row of W(x) that belongs to the target
    contributions = Σ over channels of weights ⊙ x
    bias_terms    = the named terms of b(x) for the target

Completeness: logit of the target = Σ contributions + Σ bias_terms, up to rounding.

A *target* is an integer. c ≥ 0 is class c. −r is the class with the r-th largest logit, so −1 is the predicted class.
The number of classes stands for the mean of all logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

__all__ = [
    "BIAS",
    "BIAS_TERMS",
    "CHANNELS",
    "CLASSES",
    "CONTRIBUTIONS",
    "EXPLAIN_INPUTS",
    "EXPLAIN_METADATA",
    "EXPLAIN_OUTPUTS",
    "IMAGE",
    "LOGITS",
    "MANIFEST_METADATA",
    "MOST_RANKS",
    "ONNX_OPERATORS",
    "PREDICT_INPUTS",
    "PREDICT_OUTPUTS",
    "TARGETS",
    "TOLERANCES",
    "TOLERANCE_CAPS",
    "WEIGHTS",
    "Arrays",
    "Box",
    "ExplainOutputs",
    "Floats",
    "GraphPrecision",
    "InputSpec",
    "Integers",
    "Interpolation",
    "Layout",
    "Port",
    "Precision",
    "certificate_fault",
    "certificate_scale",
    "certificate_sum",
    "explain_grid_by_rows",
    "is_complete",
    "mean_target",
    "rank_target",
    "weights_fault",
]

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

# ---------------------------------------------------------------------------------------- the input of the network

CHANNELS = 6
"""Channels of an encoded image: r, g, b, 1 − r, 1 − g, 1 − b, each in [0, 1]."""


Side: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]
"""The length of a side of a picture in pixels."""
Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
Box: TypeAlias = tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
"""A part of a picture: left, top, right, bottom in pixels, as in PIL."""


class InputSpec(BaseModel):
    """How a picture becomes the network's input: resize the shorter side, crop the centre, append 1 − rgb."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: tuple[Side, Side]
    """Height and width of the input in pixels."""
    resize: Side | None
    """Length of the shorter side after resizing; None: the picture is not resized."""
    crop: tuple[Side, Side] | None
    """Height and width of the centre crop; None: the picture is not cropped."""
    interpolation: Interpolation = "bilinear"
    channels: Literal["rgb+complement"] = "rgb+complement"

    @classmethod
    def for_photographs(cls, size: tuple[int, int], resize: int | None = None) -> InputSpec:
        """Take pictures of any size: resize the shorter side, then crop the centre to `size`.

        The default is that of the published models: 256 pixels for a crop of 224, in proportion for other sizes.
        """
        return cls(size=size, resize=round(max(size) * 256 / 224) if resize is None else resize, crop=size)

    def scaled_to(self, size: tuple[int, int]) -> InputSpec:
        """The same preprocessing for another size of the input, with the resize in proportion."""
        return InputSpec(
            size=size,
            resize=None if self.resize is None else round(self.resize * max(size) / max(self.size)),
            crop=None if self.crop is None else size,
            interpolation=self.interpolation,
        )

    @classmethod
    def exact(cls, size: tuple[int, int]) -> InputSpec:
        """Take only pictures of exactly this size."""
        return cls(size=size, resize=None, crop=None)

    @model_validator(mode="after")
    def _crop_gives_the_size(self) -> InputSpec:
        if self.crop is not None and self.crop != self.size:
            raise ValueError(f"'crop' {self.crop} does not give 'size' {self.size}")
        return self

    @model_validator(mode="after")
    def _crop_lies_inside(self) -> InputSpec:
        if self.resize is not None and self.crop is not None and self.resize < max(self.crop):
            raise ValueError(f"'crop' {self.crop} is larger than 'resize' {self.resize}")
        return self


# ------------------------------------------------------------------------------------- inputs and outputs of graphs


class Layout(Enum):
    """How an explain graph lays out its targets, and therefore every tensor that has one entry per target.

    The value is the names of the leading axes. A graph in the layout ROWS takes either one target for each image, or
    any number of targets for a single image. Its convolutions need no reshapes, which are copies in some runtimes.
    """

    GRID = ("batch", "targets")
    ROWS = ("rows",)

    @property
    def axes(self) -> tuple[str, ...]:
        axes: tuple[str, ...] = self.value
        return axes


@dataclass(frozen=True)
class Port:
    """One input or output of a graph. `sample` holds the axes that follow the leading ones; names stand for sizes.

    The leading axes are those of the layout if the tensor has one entry per target, else the batch.
    """

    name: str
    dtype: Literal["float32", "int64"]
    sample: tuple[int | str, ...]
    per_target: bool
    meaning: str

    def axes(self, layout: Layout) -> tuple[int | str, ...]:
        """All axes of the tensor, sizes that vary by name."""
        return (*(layout.axes if self.per_target else ("batch",)), *self.sample)

    def shape(self, batch: int, targets: Sequence[int], sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for that many images, targets of shape `targets`, and these sizes of the named axes."""
        leading = tuple(targets) if self.per_target else (batch,)
        return (*leading, *(axis if isinstance(axis, int) else sizes[axis] for axis in self.sample))


_PIXELS = ("height", "width")

IMAGE = Port("image", "float32", (CHANNELS, *_PIXELS), False, "the encoded images x")
TARGETS = Port("targets", "int64", (), True, "what to explain: a class, −rank, or the number of classes for the mean")

LOGITS = Port("logits", "float32", ("classes",), False, "the logits of all classes")
CLASSES = Port("classes", "int64", (), True, "the targets, with ranks replaced by classes")
WEIGHTS = Port("weights", "float32", (CHANNELS, *_PIXELS), True, "the row of W(x) that belongs to the target")
CONTRIBUTIONS = Port("contributions", "float32", _PIXELS, True, "W(x) ⊙ x, summed over channels")
BIAS = Port("bias", "float32", (), True, "b(x) of the target: the sum of its terms")
BIAS_TERMS = Port("bias_terms", "float32", ("bias_terms",), True, "the terms of b(x), in the order of the manifest")

PREDICT_INPUTS = (IMAGE,)
PREDICT_OUTPUTS = (LOGITS,)
EXPLAIN_INPUTS = (IMAGE, TARGETS)
EXPLAIN_OUTPUTS = (LOGITS, CLASSES, WEIGHTS, CONTRIBUTIONS, BIAS, BIAS_TERMS)

_PER_TARGET = {port.name for port in EXPLAIN_OUTPUTS if port.per_target}

EXPLAIN_METADATA = "bcos.explain"
"""Key of an explain graph's ONNX metadata; its value is JSON with the names of the bias terms."""
MANIFEST_METADATA = "bcos.manifest"
"""Key of every graph's ONNX metadata; its value is the digest of the manifest that the graph was exported with."""


@dataclass(frozen=True)
class ExplainOutputs:
    """The outputs of an explain graph for B images with K targets each. The arrays are new; the caller owns them.

    Each field is named after its output. `bias` is not fetched: it is the sum of `bias_terms`.
    """

    logits: Floats  # [B, classes]
    classes: Integers  # [B, K]
    contributions: Floats  # [B, K, H, W]
    bias_terms: Floats  # [B, K, terms]
    weights: Floats | None = None  # [B, K, 6, H, W]; large, so it is fetched on request only

    @classmethod
    def ports(cls, *, weights: bool) -> tuple[Port, ...]:
        """The outputs to fetch from the graph."""
        wanted = {field.name for field in fields(cls)} - (set() if weights else {WEIGHTS.name})
        return tuple(port for port in EXPLAIN_OUTPUTS if port.name in wanted)

    def __getitem__(self, images: slice) -> ExplainOutputs:
        """The outputs of some of the images."""
        return ExplainOutputs(**{name: array[images] for name, array in self._arrays().items()})

    @classmethod
    def joined(cls, parts: Sequence[ExplainOutputs]) -> ExplainOutputs:
        """The outputs for the targets of all parts, which are of the same images and have the same logits."""
        if len(parts) == 1:
            return parts[0]
        arrays = [part._arrays() for part in parts]
        return cls(
            **{
                name: np.concatenate([part[name] for part in arrays], axis=1) if name in _PER_TARGET else array
                for name, array in arrays[0].items()
            }
        )

    def _arrays(self) -> Arrays:
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}


def explain_grid_by_rows(run: Callable[[Floats, Integers], Arrays], images: Floats, targets: Integers) -> Arrays:
    """Outputs in the layout GRID for images [B, …] and targets [B, K], from a graph in the layout ROWS.

    `run` runs that graph on images with one target each, or on one image with any number of targets. If K = 1, there is
    one run. Otherwise there is one run per image, so that each forward pass is computed once.
    """
    assert len(images), "a batch holds at least one image"
    if targets.shape[1] == 1:
        outputs = run(images, targets[:, 0])
        return {name: value[:, None] if name in _PER_TARGET else value for name, value in outputs.items()}
    runs = [run(images[place : place + 1], row) for place, row in enumerate(targets)]
    return {
        name: (np.stack if name in _PER_TARGET else np.concatenate)([outputs[name] for outputs in runs])
        for name in runs[0]
    }


# fmt: off
ONNX_OPERATORS = frozenset({
    "Abs", "Acos", "Add", "And", "ArgMax", "Asin", "Atan", "AveragePool", "Cast", "Ceil", "Concat", "Conv",
    "ConvTranspose", "Cos", "Cosh", "DepthToSpace", "Div", "Equal", "Erf", "Exp", "Expand", "Floor", "Gather",
    "GatherElements", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Log", "MatMul", "Max", "MaxPool",
    "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "Shape", "Sigmoid", "Sign",
    "Sin", "Sinh", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tan", "Tanh", "TopK", "Transpose", "Unsqueeze",
    "Where", "Xor",
})
# fmt: on
"""Every ONNX operator that an exported graph may contain. A graph with another one is not opened."""


# --------------------------------------------------------------------------------------------- encoding of targets

MOST_RANKS = 3840
"""The largest rank that a graph resolves: TensorRT sorts at most this many values."""


def rank_target(rank: int) -> int:
    """The target that stands for the class with the `rank`-th largest logit, counted from 1."""
    return -rank


def mean_target(classes: int) -> int:
    """The target that stands for the mean of all logits."""
    return classes


# --------------------------------------------------------------------------------------------------- the certificate

GraphPrecision: TypeAlias = Literal["fp32", "fp16"]
"""Precision of a graph's convolutions and matrix products; everything else is computed in float32."""
Precision: TypeAlias = Literal["fp32", "tf32", "fp16"]
"""Precision on the device. With tf32 a GPU multiplies float32 with 11 significant bits, as many as fp16 has."""

# For fp32, the residual that an export accepts for its probe images. For fp16 and TF32, twice that of an fp16 export,
# because other images and devices round differently.
TOLERANCES: dict[Precision, float] = {"fp32": 1e-5, "tf32": 1e-3, "fp16": 1e-3}
"""Largest |residual| / scale of a complete explanation."""
TOLERANCE_CAPS: dict[Precision, float] = {"fp32": 1e-4, "tf32": 2e-3, "fp16": 2e-3}
"""The largest tolerance that is applied, even if a manifest has a larger one."""


def certificate_scale(
    contributions: npt.NDArray[np.floating],
    bias_terms: npt.NDArray[np.floating],
    logits: npt.NDArray[np.floating],
    is_mean: npt.NDArray[np.bool_] | bool,
) -> npt.NDArray[np.float64]:
    """The scale of a residual: Σ|contribution| + Σ|bias term|, plus mean|logit| for the mean target.

    Signed terms cancel, so the logit itself would be too small a scale. The mean of the logits has their rounding
    errors even if the logits cancel. Axes: [..., H, W], [..., terms], [..., classes] and [...].
    """
    terms = np.abs(contributions).sum((-2, -1), dtype=np.float64) + np.abs(bias_terms).sum(-1, dtype=np.float64)
    rounding = np.abs(logits).mean(-1, dtype=np.float64)
    scale: npt.NDArray[np.float64] = terms + np.where(is_mean, rounding, 0.0)
    return scale


def certificate_sum(contributions: npt.NDArray[np.floating], bias_terms: npt.NDArray[np.floating]) -> float:
    """Σ contributions + Σ bias terms of one explanation, in float64."""
    return float(contributions.sum(dtype=np.float64) + bias_terms.sum(dtype=np.float64))


def is_complete(logit: float, total: float, scale: float, tolerance: float, precision: Precision) -> bool:
    """|logit − sum| ≤ min(tolerance, cap of the precision) · scale, and all of them are finite."""
    finite = all(map(math.isfinite, (logit, total, scale, tolerance)))
    return finite and abs(logit - total) <= min(tolerance, TOLERANCE_CAPS[precision]) * scale


_SAME = 1e-6  # relative to the scale: the same terms, added up in another order
_EIGHT_BITS = 0.5 / 255 + 1e-3  # of an input that was passed encoded, a result has the nearest 8-bit image
_MOST_CANCELLATION = 32
"""The scale of a mean or a difference exceeds that of its own terms, because terms of its classes cancel. Which terms
cancelled is not in its arrays, so a stated scale counts only up to this multiple of their scale."""


def certificate_fault(
    contributions: npt.NDArray[np.floating],
    bias_terms: npt.NDArray[np.floating],
    *,
    of_one_class: bool,
    logit: float,
    total: float,
    scale: float,
    tolerance: float,
    precision: Precision,
) -> str | None:
    """What is wrong with a stated certificate, computed again from the arrays of its explanation; None if nothing is.

    A certificate may say that the explanation is incomplete. It may not say that an incomplete one is complete.
    """
    computed = certificate_sum(contributions, bias_terms)
    own_scale = float(certificate_scale(contributions, bias_terms, np.zeros(1), is_mean=False))
    rounding = _SAME * own_scale
    if math.isfinite(total) and not abs(total - computed) <= rounding:
        return f"the certificate has the sum {total:.6g}, but the terms add up to {computed:.6g}"
    if of_one_class and math.isfinite(scale) and not abs(scale - own_scale) <= rounding:
        return f"the certificate has the scale {scale:.6g}, but that of the terms is {own_scale:.6g}"
    believed = own_scale if of_one_class else min(scale, _MOST_CANCELLATION * own_scale)
    allowed = min(tolerance, TOLERANCE_CAPS[precision]) * believed + rounding
    if is_complete(logit, total, scale, tolerance, precision) and not abs(logit - computed) <= allowed:
        return f"the certificate says complete, but the terms add up to {computed:.6g}, and the logit is {logit:.6g}"
    return None


def weights_fault(
    contributions: npt.NDArray[np.floating], weights: npt.NDArray[np.floating], image: npt.NDArray[np.floating]
) -> str | None:
    """Why contributions ≠ Σ over channels of weights ⊙ image; None if they are equal, up to rounding it to 8 bits.

    The certificate is that of the contributions. Pictures of W(x) are covered by it only if W(x) gives them.
    """
    computed = np.einsum("chw,chw->hw", weights, image)
    difference = np.abs(contributions - computed).sum(dtype=np.float64)
    allowed = _EIGHT_BITS * np.abs(weights).sum(dtype=np.float64)
    if difference <= allowed or not np.isfinite(contributions).all():  # these are not complete anyhow
        return None
    return f"W(x) times the image differs from the contributions by {difference:.6g}, expected at most {allowed:.6g}"
