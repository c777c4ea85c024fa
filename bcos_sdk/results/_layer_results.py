"""Results for inner layers: a value of a layer explained by pixels, and a logit explained by features of a layer."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from typing_extensions import Self

from bcos_sdk.contract import is_complete
from bcos_sdk.errors import IncompleteExplanationError
from bcos_sdk.results._arrays import LayerArrays, equal_arrays
from bcos_sdk.results._explanation import Explanation
from bcos_sdk.results._records import Completeness, Prediction, Record, Target

__all__ = ["Feature", "FeatureExplanation", "Features", "LayerExplanation", "LayerFeatures", "feature_sum"]

Position = tuple[int, ...] | Literal["mean"]
_SAME = 1e-6


class LayerExplanation(Explanation):
    """How much each pixel adds to a value of a layer: ⟨direction, activation⟩ = Σ contributions + Σ bias terms.

    It draws, saves and certifies as an explanation of a logit. `target` describes the value in words, and its `logit`,
    like that of the certificate, is the value.
    """

    layer: str
    """The path of the module."""
    channel: int | None
    """The channel, or None if the direction is a vector."""
    position: Position
    """(y, x) of a map, (token,) of a sequence, () of a single vector, or "mean" over all positions."""
    arrays: LayerArrays = Field(repr=False)

    @property
    def value(self) -> float:
        """⟨direction, activation⟩ at the position."""
        return self.target.logit

    @property
    def _of_one_class(self) -> bool:
        """A direction may cancel activations: then the scale exceeds that of the terms."""
        return self.channel is not None and self.position != "mean"


class Feature(Record):
    """One activation of a layer, and how much it adds to the logit."""

    channel: int
    position: tuple[int, ...]
    contribution: float
    activation: float

    @property
    def direction(self) -> int:
        """What to pass to `explain_layer` as the direction: the channel."""
        return self.channel


class FeatureExplanation(Record):
    """How much each activation of a layer adds to one logit: logit = Σ contributions + Σ bias terms above the layer.

    This holds if every path from the image to the logits passes the layer. Otherwise the contributions are a share of
    the logit, `partial` is true, and there is no certificate.
    """

    schema_version: Literal[1] = 1
    source: str
    model: str
    layer: str
    """The path of the module."""
    prediction: Prediction
    target: Target
    partial: bool
    """Whether a path goes round the layer, so that the contributions do not add up to the logit."""
    bias: dict[str, float]
    """The bias terms that enter above the layer; empty if it is partial."""
    completeness: Completeness | None
    """The certificate; None if the layer is partial."""
    features: tuple[Feature, ...]
    """The activations that add most to the logit, largest first."""
    positions: tuple[int, ...]
    """Height and width of the map, the number of tokens, or () for a single vector."""
    arrays: LayerArrays = Field(repr=False)

    @property
    def contributions(self) -> npt.NDArray[np.float32]:
        """[channels, *positions]: how much each activation adds to the logit."""
        return self._shaped("features")

    @property
    def activations(self) -> npt.NDArray[np.float32]:
        """[channels, *positions]: the output of the layer."""
        return self._shaped("activations")

    @property
    def per_position(self) -> npt.NDArray[np.float32]:
        """[*positions]: the sum over channels."""
        return self.contributions.sum(0)  # type: ignore[no-any-return]

    @property
    def per_channel(self) -> npt.NDArray[np.float32]:
        """[channels]: the sum over positions."""
        return self.arrays["features"].sum(1)  # type: ignore[no-any-return]

    def require_complete(self) -> None:
        """Raise an `IncompleteExplanationError` if there is a certificate and it has not passed."""
        figures = self.completeness
        if figures is not None and not figures.passed:
            reason = f"its features add up to {figures.sum:.6g}, the logit is {figures.logit:.6g}"
            raise self._incomplete(reason, figures)

    def _shaped(self, name: str) -> npt.NDArray[np.float32]:
        array = self.arrays[name]
        return array.reshape(len(array), *self.positions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FeatureExplanation):
            return NotImplemented
        same_numbers = self.model_dump(exclude={"arrays"}) == other.model_dump(exclude={"arrays"})
        return same_numbers and equal_arrays(self.arrays, other.arrays)

    __hash__ = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _certificate_is_of_these_arrays(self) -> Self:
        figures = self.completeness
        if self.partial != (figures is None):
            raise ValueError("a layer has a certificate if it is not partial, and none if it is")
        if figures is None or "features" not in self.arrays:
            return self
        terms = np.array([*self.bias.values()], np.float64)
        total, scale = feature_sum(self.arrays["features"], terms)
        stated = (figures.logit, figures.sum, figures.scale)
        found = (self.target.logit, total, scale)
        if all(map(math.isfinite, stated)) and any(
            abs(one - other) > _SAME * scale for one, other in zip(stated, found, strict=True)
        ):
            raise self._incomplete(f"its certificate has {stated}, its arrays give {found}", figures)
        if figures.passed and not is_complete(
            found[0], total, scale * (1 + _SAME), figures.tolerance, figures.precision
        ):
            raise self._incomplete(f"its features add up to {total:.6g}, the logit is {found[0]:.6g}", figures)
        return self

    def _incomplete(self, reason: str, figures: Completeness) -> IncompleteExplanationError:
        return IncompleteExplanationError(
            f"the explanation of {self.target.label!r} by {self.layer} for {self.source} is not complete: {reason}",
            source=self.source,
            hint="The bundle is damaged, the device computes wrong results, or the result was changed. Explain the "
            "image again on the CPU, or export the model again.",
            completeness=figures,
        )


class LayerFeatures(Record):
    """The output of one layer for one image."""

    layer: str
    """The path of the module."""
    positions: tuple[int, ...]
    """Height and width of the map, the number of tokens, or () for a single vector."""
    arrays: LayerArrays = Field(repr=False)

    @property
    def activations(self) -> npt.NDArray[np.float32]:
        """[channels, *positions]: the output of the layer."""
        array = self.arrays["activations"]
        return array.reshape(len(array), *self.positions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LayerFeatures):
            return NotImplemented
        same_place = (self.layer, self.positions) == (other.layer, other.positions)
        return same_place and equal_arrays(self.arrays, other.arrays)

    __hash__ = None  # type: ignore[assignment]


class Features(Record):
    """The prediction for one image, and the outputs of inner layers."""

    schema_version: Literal[1] = 1
    source: str
    model: str
    prediction: Prediction
    layers: tuple[LayerFeatures, ...]

    def __getitem__(self, layer: str) -> npt.NDArray[np.float32]:
        """[channels, *positions]: the output of the layer of this path. A `KeyError` if it was not asked for."""
        found = {one.layer: one for one in self.layers}
        return found[layer].activations


def feature_sum(features: npt.NDArray[Any], terms: npt.NDArray[Any]) -> tuple[float, float]:
    """Σ features + Σ bias terms, and the same sum of absolute values."""
    total = float(features.sum(dtype=np.float64) + terms.sum(dtype=np.float64))
    return total, float(np.abs(features).sum(dtype=np.float64) + np.abs(terms).sum(dtype=np.float64))
