"""What is measured: scores of each image or grid, and the figures that summarise them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from bcos_sdk.errors import BcosError
from bcos_sdk.results import Failure

__all__ = ["Figures", "Item", "Spread", "spread"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Item(_Record):
    """The scores of one image or grid in one measure, or why it has none."""

    name: str
    scores: dict[str, float] = {}
    curves: dict[str, tuple[float, ...]] = {}
    failure: Failure | None = None

    @classmethod
    def failed(cls, name: str, error: BcosError | Failure) -> Item:
        failure = error if isinstance(error, Failure) else Failure.of(error, name)
        return cls(name=name, failure=failure.model_copy(update={"source": name}))


class Spread(_Record):
    """How the scores of all items are distributed."""

    count: int
    mean: float
    error: float
    """Standard error of the mean."""
    p5: float
    q25: float
    median: float
    q75: float
    p95: float


class Figures(_Record):
    """The result of one measure."""

    items: int
    values: dict[str, float] = {}
    spreads: dict[str, Spread] = {}
    curves: dict[str, tuple[float, ...]] = {}
    """Means over the items."""
    details: dict[str, Any] = {}


def spread(values: Iterable[float] | Sequence[float]) -> Spread:
    """Mean, its standard error, and percentiles; of at least one value."""
    array = np.asarray(list(values), np.float64)
    p5, q25, median, q75, p95 = map(float, np.percentile(array, [5, 25, 50, 75, 95]))
    error = float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else 0.0
    return Spread(
        count=len(array), mean=float(array.mean()), error=error, p5=p5, q25=q25, median=median, q75=q75, p95=p95
    )
