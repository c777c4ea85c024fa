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
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

__all__ = [
    "BIAS",
    "BIAS_TERMS",
    "CHANNELS",
    "CHANNEL_COUNTS",
    "CLASSES",
    "CONTRIBUTIONS",
    "DIRECTIONS",
    "EXPLAIN_INPUTS",
    "EXPLAIN_METADATA",
    "EXPLAIN_OUTPUTS",
    "EXPLAIN_SUFFIX",
    "FOREIGN_OPERATORS",
    "IMAGE",
    "LARGEST_POSITION",
    "LAYER_INPUTS",
    "LAYER_OUTPUTS",
    "LOGITS",
    "MAGNITUDE",
    "MANIFEST_METADATA",
    "MANIFEST_PARAMETER",
    "MOST_CHANNELS",
    "MOST_RANKS",
    "MOST_TARGETS_PARAMETER",
    "ONNX_OPERATORS",
    "PIXELS_INPUT",
    "PLACES",
    "POSITIONS",
    "PREDICT_INPUTS",
    "PREDICT_OUTPUTS",
    "TARGETS",
    "TOLERANCES",
    "TOLERANCE_CAPS",
    "VALUE",
    "WEIGHTS",
    "Arrays",
    "Box",
    "Channels",
    "ExplainOutputs",
    "FeatureOutputs",
    "Floats",
    "GraphPrecision",
    "InputSpec",
    "Integers",
    "Interpolation",
    "LayerOutputs",
    "Layout",
    "Port",
    "Precision",
    "Probability",
    "RelayOutputs",
    "certificate_fault",
    "certificate_scale",
    "certificate_sum",
    "explain_grid_by_rows",
    "is_complete",
    "is_per_target",
    "layer_certificate_scale",
    "layer_ports",
    "mean_position",
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
Channels: TypeAlias = Literal["rgb+complement", "rgb", "grey+complement", "grey", "none"]
"""How a picture becomes channels, each in [0, 1]; "none": not at all, the network takes arrays of any finite values."""
CHANNEL_COUNTS: dict[str, int] = {"rgb+complement": CHANNELS, "rgb": 3, "grey+complement": 2, "grey": 1}
MOST_CHANNELS = 4096

Side: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]
"""The length of a side of a picture in pixels."""
Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
Probability: TypeAlias = Literal["sigmoid", "softmax", "none"]
"""How logits become probabilities; "none": they are values without one, as of a regression or an embedding."""
Box: TypeAlias = tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
"""A part of a picture: left, top, right, bottom in pixels, as in PIL."""


class InputSpec(BaseModel):
    """How a picture becomes the network's input: resize the shorter side, crop the centre, append 1 − rgb.

    With the channels "none" there is no such way: the network takes arrays [array_channels, *size].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: tuple[Side, Side]
    """Height and width of the input in pixels."""
    resize: Side | None
    """Length of the shorter side after resizing; None: the picture is not resized."""
    crop: tuple[Side, Side] | None
    """Height and width of the centre crop; None: the picture is not cropped."""
    interpolation: Interpolation = "bilinear"
    channels: Channels = "rgb+complement"
    array_channels: int | None = Field(default=None, ge=1, le=MOST_CHANNELS)
    """The number of channels if `channels` is "none". Other specs have no such key in JSON."""

    @property
    def depth(self) -> int:
        """The number of channels of the network's input."""
        return self.array_channels or CHANNEL_COUNTS[self.channels]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the network's input: channels, height, width."""
        return (self.depth, *self.size)

    @classmethod
    def for_photographs(
        cls, size: tuple[int, int], resize: int | None = None, channels: Channels = "rgb+complement"
    ) -> InputSpec:
        """Take pictures of any size: resize the shorter side, then crop the centre to `size`.

        The default is that of the published models: 256 pixels for a crop of 224, in proportion for other sizes.
        """
        resize = round(max(size) * 256 / 224) if resize is None else resize
        return cls(size=size, resize=resize, crop=size, channels=channels)

    def scaled_to(self, size: tuple[int, int]) -> InputSpec:
        """The same preprocessing for another size of the input, with the resize in proportion."""
        return InputSpec(
            size=size,
            resize=None if self.resize is None else round(self.resize * max(size) / max(self.size)),
            crop=None if self.crop is None else size,
            interpolation=self.interpolation,
            channels=self.channels,
            array_channels=self.array_channels,
        )

    @classmethod
    def exact(cls, size: tuple[int, int], channels: Channels = "rgb+complement") -> InputSpec:
        """Take only pictures of exactly this size."""
        return cls(size=size, resize=None, crop=None, channels=channels)

    @classmethod
    def arrays(cls, channels: int, size: tuple[int, int]) -> InputSpec:
        """Take no pictures, but arrays float [channels, *size] of any finite values."""
        return cls(size=size, resize=None, crop=None, channels="none", array_channels=channels)

    @model_serializer(mode="wrap")
    def _without_array_channels(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = serialize(self)
        if document.get("array_channels") is None:
            document.pop("array_channels", None)
        return document

    @model_validator(mode="after")
    def _arrays_have_a_number_of_channels(self) -> InputSpec:
        if (self.channels == "none") != (self.array_channels is not None):
            raise ValueError("'array_channels' is given exactly if 'channels' is \"none\"")
        if self.channels == "none" and (self.resize is not None or self.crop is not None):
            raise ValueError("arrays are neither resized nor cropped: 'resize' and 'crop' must be null")
        return self

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


_DEPTH = "image channels"
_PIXELS = ("height", "width")

IMAGE = Port("image", "float32", (_DEPTH, *_PIXELS), False, "the encoded images x")
TARGETS = Port("targets", "int64", (), True, "what to explain: a class, −rank, or the number of classes for the mean")

LOGITS = Port("logits", "float32", ("classes",), False, "the logits of all classes")
CLASSES = Port("classes", "int64", (), True, "the targets, with ranks replaced by classes")
WEIGHTS = Port("weights", "float32", (_DEPTH, *_PIXELS), True, "the row of W(x) that belongs to the target")
CONTRIBUTIONS = Port("contributions", "float32", _PIXELS, True, "W(x) ⊙ x, summed over channels")
BIAS = Port("bias", "float32", (), True, "b(x) of the target: the sum of its terms")
BIAS_TERMS = Port("bias_terms", "float32", ("bias_terms",), True, "the terms of b(x), in the order of the manifest")

PREDICT_INPUTS = (IMAGE,)
PREDICT_OUTPUTS = (LOGITS,)
EXPLAIN_INPUTS = (IMAGE, TARGETS)
EXPLAIN_OUTPUTS = (LOGITS, CLASSES, WEIGHTS, CONTRIBUTIONS, BIAS, BIAS_TERMS)

POSITIONS = Port("positions", "int64", (), True, "where: an index, −1 for the largest value, their number for the mean")
DIRECTIONS = Port("directions", "float32", ("channels",), True, "what: a vector in the channels of the layer")

PLACES = Port("places", "int64", (), True, "the positions, with −1 replaced by the position of the largest value")
VALUE = Port("value", "float32", (), True, "⟨direction, activation⟩ at the position")
MAGNITUDE = Port("magnitude", "float32", (), True, "⟨|direction|, |activation|⟩ at the position")

LAYER_INPUTS = (IMAGE, POSITIONS, DIRECTIONS)
LAYER_OUTPUTS = (PLACES, VALUE, MAGNITUDE, WEIGHTS, CONTRIBUTIONS, BIAS_TERMS)


def layer_ports(index: int, shape: tuple[int, ...], terms: int) -> tuple[Port, Port, Port]:
    """The ports of the layer at this index of a bundle: activations (also of the features graph), features, bias above.

    `features` are a ⊙ W_{l→L}: how much each activation of the layer adds to the logit of the target.
    """
    return (
        Port(f"activations_{index}", "float32", shape, False, "the output a of the layer"),
        Port(f"features_{index}", "float32", shape, True, "a ⊙ W from the layer to the target"),
        Port(f"bias_above_{index}", "float32", (terms,), True, "the terms of b(x) that enter above the layer"),
    )


_PER_TARGET = {port.name for port in (*EXPLAIN_OUTPUTS, *LAYER_OUTPUTS) if port.per_target}


def is_per_target(name: str) -> bool:
    """Whether the output of this name has an axis of targets after that of images."""
    return name in _PER_TARGET or name.startswith(("features_", "bias_above_"))


EXPLAIN_METADATA = "bcos.explain"
"""Key of an explain graph's ONNX metadata; its value is JSON with the names of the bias terms."""
MANIFEST_METADATA = "bcos.manifest"
"""Key of every graph's ONNX metadata; its value is the digest of the manifest that the graph was exported with."""

EXPLAIN_SUFFIX = "_explain"
"""On an inference server the model NAME predicts, and the model NAME with this suffix explains."""
MANIFEST_PARAMETER = "bcos_manifest"
"""Parameter of both models that holds the manifest: of the metadata (`bcos-sdk serve`) or of the config (Triton)."""
MOST_TARGETS_PARAMETER = "bcos_most_targets"
"""Parameter of the config of an explaining model on Triton: the most targets of one image in one request."""
PIXELS_INPUT = "pixels"
"""The input that replaces `image` in a graph that encodes 8-bit pixels [B, H, W, colours] itself."""


@dataclass(frozen=True)
class ExplainOutputs:
    """The outputs of an explain graph for B images with K targets each. The arrays are new; the caller owns them.

    Each field is named after its output. `bias` is not fetched: it is the sum of `bias_terms`.
    """

    logits: Floats  # [B, classes]
    classes: Integers  # [B, K]
    contributions: Floats  # [B, K, H, W]
    bias_terms: Floats  # [B, K, terms]
    weights: Floats | None = None  # [B, K, channels, H, W]; large, so it is fetched on request only

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


@dataclass(frozen=True)
class LayerOutputs:
    """The outputs of a layer's explain graph for B images with K queries each."""

    places: Integers  # [B, K]
    value: Floats  # [B, K]
    magnitude: Floats  # [B, K]
    contributions: Floats  # [B, K, H, W]
    bias_terms: Floats  # [B, K, terms]
    weights: Floats  # [B, K, channels, H, W]

    def __getitem__(self, images: slice) -> LayerOutputs:
        """The outputs of some of the images."""
        return LayerOutputs(**{field.name: getattr(self, field.name)[images] for field in fields(self)})


@dataclass(frozen=True)
class FeatureOutputs:
    """The outputs of the features graph for B images: logits, and the activations of each layer that was asked for."""

    logits: Floats  # [B, classes]
    activations: tuple[Floats, ...]  # per layer [B, *shape of the layer]

    def __getitem__(self, images: slice) -> FeatureOutputs:
        """The outputs of some of the images."""
        return FeatureOutputs(self.logits[images], tuple(one[images] for one in self.activations))


@dataclass(frozen=True)
class RelayOutputs:
    """The outputs of the relay graph for one layer."""

    logits: Floats  # [B, classes]
    activations: Floats  # [B, *shape of the layer]
    classes: Integers  # [B, K]
    features: Floats  # [B, K, *shape of the layer]
    bias_above: Floats  # [B, K, terms]

    def __getitem__(self, images: slice) -> RelayOutputs:
        """The outputs of some of the images."""
        return RelayOutputs(**{field.name: getattr(self, field.name)[images] for field in fields(self)})


def explain_grid_by_rows(
    run: Callable[..., Arrays], images: Floats, targets: Integers, *others: npt.NDArray[Any]
) -> Arrays:
    """Outputs in the layout GRID for images [B, …] and targets [B, K], from a graph in the layout ROWS.

    `run` runs that graph on images with one target each, or on one image with any number of targets. If K = 1, there is
    one run. Otherwise there is one run per image, so that each forward pass is computed once. `others` are further
    inputs [B, K, …].
    """
    assert len(images), "a batch holds at least one image"
    if targets.shape[1] == 1:
        outputs = run(images, targets[:, 0], *(other[:, 0] for other in others))
        return {name: value[:, None] if is_per_target(name) else value for name, value in outputs.items()}
    rows = zip(targets, *others, strict=True)
    runs = [run(images[place : place + 1], *row) for place, row in enumerate(rows)]
    return {
        name: (np.stack if is_per_target(name) else np.concatenate)([outputs[name] for outputs in runs])
        for name in runs[0]
    }


# fmt: off
ONNX_OPERATORS = frozenset({
    "Abs", "Acos", "Add", "And", "ArgMax", "Asin", "Atan", "AveragePool", "Cast", "Ceil", "Concat", "Conv",
    "ConvTranspose", "Cos", "Cosh", "DepthToSpace", "Div", "Equal", "Erf", "Exp", "Expand", "Floor", "Gather",
    "GatherElements", "Greater", "GreaterOrEqual", "Identity", "IsNaN", "Less", "LessOrEqual", "Log", "MatMul", "Max",
    "MaxPool", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "Shape", "Sigmoid", "Sign",
    "Sin", "Sinh", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tan", "Tanh", "TopK", "Transpose", "Unsqueeze",
    "Where", "Xor",
})
# fmt: on
"""Every ONNX operator that the exporter writes itself. TensorRT has all of them."""

# fmt: off
FOREIGN_OPERATORS = frozenset({
    "Acosh", "Asinh", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Celu", "Clip", "ConstantOfShape",
    "CumSum", "Einsum", "Elu", "Flatten", "GatherND", "Gelu", "Gemm", "GridSample", "HardSigmoid", "HardSwish",
    "IsInf", "LayerNormalization", "LeakyRelu", "LogSoftmax", "LpNormalization", "Mean", "Mish", "OneHot", "PRelu",
    "Range", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Resize", "ScatterElements", "ScatterND", "Selu",
    "Shrink", "Size", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sum", "ThresholdedRelu", "Tile", "Trilu",
})
# fmt: on
"""Further ONNX operators that torch's ONNX library may write for frozen values: none has a subgraph or reads a file.

A graph with an operator of neither set is not opened.
"""


# --------------------------------------------------------------------------------------------- encoding of targets

MOST_RANKS = 3840
"""The largest rank that a graph resolves: TensorRT sorts at most this many values."""


def rank_target(rank: int) -> int:
    """The target that stands for the class with the `rank`-th largest logit, counted from 1."""
    return -rank


def mean_target(classes: int) -> int:
    """The target that stands for the mean of all logits."""
    return classes


LARGEST_POSITION = -1
"""The position that stands for the one with the largest value."""


def mean_position(positions: int) -> int:
    """The position that stands for the mean over all."""
    return positions


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
    if is_mean is False:
        return np.asarray(terms)
    rounding = np.abs(logits).mean(-1, dtype=np.float64)
    scale: npt.NDArray[np.float64] = terms + np.where(is_mean, rounding, 0.0)
    return scale


def layer_certificate_scale(
    contributions: npt.NDArray[np.floating],
    bias_terms: npt.NDArray[np.floating],
    magnitude: npt.NDArray[np.floating] | float,
) -> npt.NDArray[np.float64]:
    """The scale of a residual of a layer's value: Σ|contribution| + Σ|bias term|, at least ⟨|direction|, |activation|⟩.

    A direction may cancel activations, and the value then has their rounding errors.
    """
    terms = np.abs(contributions).sum((-2, -1), dtype=np.float64) + np.abs(bias_terms).sum(-1, dtype=np.float64)
    scale: npt.NDArray[np.float64] = np.maximum(terms, magnitude)
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
