"""The certificate: residual = logit − (Σ contributions + Σ bias), judged against Σ|contribution| + Σ|bias|."""

from __future__ import annotations

import math

from pydantic import computed_field

from bcos_sdk.contract import TOLERANCE_CAPS, Precision
from bcos_sdk.results._base import Record

__all__ = ["Completeness"]


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
