"""The records of a result: scores of classes, the certificate of an explanation, the failure of an image."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field, model_validator
from typing_extensions import Self

from bcos_sdk._plain_text import plain_json
from bcos_sdk.contract import TOLERANCE_CAPS, Precision, is_complete
from bcos_sdk.errors import BcosError, InputError, first_faults
from bcos_sdk.results._arrays import ARRAYS
from bcos_sdk.results._html import failure_html, prediction_html

__all__ = ["SCHEMA_VERSION", "ClassScore", "Completeness", "Failure", "Prediction", "Record", "Target"]

SCHEMA_VERSION = 1
"""Version of the JSON of every result. It changes if older versions could not read the JSON correctly."""


class Record(BaseModel):
    """A frozen record that JSON restores exactly. Unknown fields, written by a later version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    def to_json(self, *, arrays: Literal["base64", "omit"] = "base64") -> str:
        """Return one line of JSON. Arrays but `display` are written as base64 of their bytes, or left out as well."""
        if arrays not in ("base64", "omit"):
            raise InputError(f'arrays is {arrays!r}, expected "base64" or "omit"', hint='Use "base64" or "omit".')
        return plain_json(self.model_dump_json(context={ARRAYS: arrays}))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Restore the result from the text that `to_json` returned.

        The certificate of an explanation is checked against its arrays: an `IncompleteExplanationError` if it is not
        theirs. Without arrays it is what the text states, and `Explanation.verified` is False.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InputError(
                f"this JSON is not a valid {cls.__name__}: {first_faults(error)}",
                hint="Pass the text that `to_json` returned.",
            ) from None


class Completeness(Record):
    """The certificate of one explanation: whether contributions and bias terms add up to the logit.

    residual = logit − sum. The explanation is complete if |residual| ≤ tolerance · scale. `passed` is computed from
    the figures and cannot be set.
    """

    logit: float
    """The logit of the target."""
    sum: float
    """Σ contributions + Σ bias terms."""
    scale: float
    """Σ|contribution| + Σ|bias term|; signed terms cancel, so the logit would be too small a scale.

    For the mean of all logits, mean|logit| is added.
    """
    tolerance: float
    """Largest |residual| / scale of a complete explanation."""
    precision: Precision = "fp32"
    """Precision of convolutions and matrix products on the device. It caps the tolerance."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def residual(self) -> float:
        return self.logit - self.sum

    @computed_field  # type: ignore[prop-decorator]
    @property
    def relative_residual(self) -> float:
        if self.residual == 0:
            return 0.0
        return abs(self.residual) / self.scale if self.scale else math.inf

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        return is_complete(self.logit, self.sum, self.scale, self.tolerance, self.precision)

    @model_validator(mode="after")
    def _tolerance_is_at_most_the_cap(self) -> Self:
        cap = TOLERANCE_CAPS[self.precision]
        if not 0 <= self.tolerance <= cap:
            raise ValueError(f"the tolerance is {self.tolerance:g}, expected 0 to {cap:g} for {self.precision}")
        return self


class Target(Record):
    """What is explained: a class, the mean of all logits, or the difference of two of them."""

    index: int | None
    """The class; None for the mean and for differences."""
    label: str
    logit: float
    probability: float | None
    """The probability of the class; None for the mean, for differences, and if the logits are no scores of classes."""


class ClassScore(Record):
    """Logit and probability of one class. Without labels, `label` is the index as text.

    `probability` is None if the model was exported with `probability="none"`: the logit is then a plain value.
    """

    index: int
    label: str
    logit: float
    probability: float | None


class Prediction(Record):
    """The most likely classes of one image, most likely first."""

    schema_version: Literal[1] = 1
    source: str
    """The path of the image, or its position in the list."""
    model: str
    classes: tuple[ClassScore, ...]
    notes: tuple[str, ...] = ()
    """How the image was interpreted where its file leaves a choice, for example the range of 16-bit values."""

    def _repr_html_(self) -> str:
        return prediction_html(self)


class Failure(Record):
    """An image without a result: code, message and hint of its error."""

    schema_version: Literal[1] = 1
    source: str
    """The path of the image, or its position in the list."""
    code: str
    message: str
    hint: str | None
    retryable: bool
    """Whether the same call may succeed later."""

    def _repr_html_(self) -> str:
        return failure_html(self)

    @classmethod
    def of(cls, error: BcosError, source: str) -> Self:
        """The failure of the image `source` by this error."""
        return cls(source=source, code=error.code, message=error.message, hint=error.hint, retryable=error.retryable)
