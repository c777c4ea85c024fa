"""What is said of one image: its classes, their explanations, or why there are none."""

from __future__ import annotations

from typing import Literal

from typing_extensions import Self

from bcos_sdk.errors import BcosError
from bcos_sdk.results._base import Record
from bcos_sdk.results._explanation import Explanation

__all__ = ["SCHEMA_VERSION", "ClassScore", "Explained", "Failure", "Prediction"]

SCHEMA_VERSION = 1
"""Of the JSON of every result; it changes when a reader of the older one would misunderstand."""


class ClassScore(Record):
    """A class and what the network says of it; a model without labels calls its classes by number."""

    index: int
    label: str
    logit: float
    probability: float


class Prediction(Record):
    """The most likely classes of one image, in order."""

    schema_version: Literal[1] = 1
    source: str
    model: str
    classes: tuple[ClassScore, ...]


class Explained(Record):
    """A prediction and its explanations, in the order of the targets."""

    schema_version: Literal[1] = 1
    source: str
    prediction: Prediction
    explanations: tuple[Explanation, ...]


class Failure(Record):
    """An image without a result, and why: what its error said."""

    schema_version: Literal[1] = 1
    source: str
    code: str
    message: str
    hint: str | None
    retryable: bool

    @classmethod
    def of(cls, error: BcosError, source: str) -> Self:
        return cls(source=source, code=error.code, message=error.message, hint=error.hint, retryable=error.retryable)
