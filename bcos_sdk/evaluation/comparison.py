"""Two models on the same images: paired differences with confidence intervals by the bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from bcos_sdk.evaluation._items import Item

__all__ = ["PAIRED", "Difference", "bootstrap_interval", "compare"]

RESAMPLES = 2000
_BLOCK = 1 << 22
PAIRED: Mapping[str, tuple[str, ...]] = {
    "accuracy": ("top1", "top5"),
    "localisation": ("localisation", "raw", "quantile"),
    "masks": ("inside", "pointing"),
    "faithfulness": ("deletion_most", "insertion_most"),
    "bias": ("share",),
    "stability": ("cosine", "rank"),
}
"""The scores of each measure that are compared image by image, or grid by grid."""


class Difference(BaseModel):
    """model − other: the mean over the items that both have scores for, with its interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    measure: str
    score: str
    items: int
    model: float
    other: float
    difference: float
    low: float
    high: float
    """The interval holds 95 % of the means of resampled items."""
    changed: int
    """Number of items whose score differs."""


def bootstrap_interval(differences: npt.ArrayLike, *, seed: int, level: float = 0.95) -> tuple[float, float]:
    """The percentiles of the mean over items that are drawn with replacement, 2,000 times."""
    values = np.asarray(differences, np.float64)
    random = np.random.default_rng(seed)
    rows = max(1, _BLOCK // len(values))
    means = [
        values[random.integers(0, len(values), (min(rows, RESAMPLES - start), len(values)))].mean(1)
        for start in range(0, RESAMPLES, rows)
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def compare(measure: str, model: Sequence[Item], other: Sequence[Item], *, seed: int) -> list[Difference]:
    """The paired differences of a measure. Items without scores in one of the models are left out."""
    of_other = {item.name: item.scores for item in other if item.failure is None}
    pairs = [(item.scores, of_other[item.name]) for item in model if item.failure is None and item.name in of_other]
    found = []
    for score in PAIRED[measure] if pairs else ():
        ours, theirs = (np.array([pair[side][score] for pair in pairs]) for side in (0, 1))
        low, high = bootstrap_interval(ours - theirs, seed=seed)
        found.append(
            Difference(
                measure=measure,
                score=score,
                items=len(pairs),
                model=float(ours.mean()),
                other=float(theirs.mean()),
                difference=float((ours - theirs).mean()),
                low=low,
                high=high,
                changed=int((ours != theirs).sum()),
            )
        )
    return found
