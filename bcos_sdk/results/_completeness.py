"""The certificate: residual = logit − (Σ contributions + Σ bias), judged against Σ|contribution| + Σ|bias|."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from pydantic import computed_field

from bcos_sdk.results._base import Record

__all__ = ["TOLERANCE_CAPS", "Completeness", "Precision"]

Precision: TypeAlias = Literal["fp32", "fp16"]
"""Of the products of a graph; the certificate itself is always computed in float."""

TOLERANCE_CAPS: dict[Precision, float] = {"fp32": 1e-4, "fp16": 2e-3}
"""What no manifest and no option can exceed, by the precision of the graph."""


class Completeness(Record):
    """Whether an explanation adds up to its logit. The verdict follows from the figures; it cannot be set."""

    logit: float
    sum: float
    """Σ contributions + Σ bias terms."""
    scale: float
    """Σ|contribution| + Σ|bias term|: signed terms cancel, so the logit alone would be the wrong measure."""
    tolerance: float
    precision: Precision = "fp32"

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
        finite = all(map(math.isfinite, (self.logit, self.sum, self.scale)))
        allowed = min(self.tolerance, TOLERANCE_CAPS[self.precision]) * self.scale
        return finite and abs(self.residual) <= allowed
