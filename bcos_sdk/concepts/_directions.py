"""Choose directions: those that contribute most to the class, and that differ from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bcos_sdk.results import FeatureExplanation

__all__ = ["Candidate", "candidate_of", "choose"]

_QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.97, 1.0)


@dataclass(frozen=True)
class Candidate:
    """The activation of an image at the position that adds most to the logit, as a vector of unit length."""

    index: int
    position: int
    vector: npt.NDArray[np.float64]
    contribution: float
    logit: float


def candidate_of(index: int, result: FeatureExplanation) -> Candidate | None:
    """The strongest position of an image; None if no position adds to the logit."""
    per_position = result.arrays["features"].sum(0, dtype=np.float64)
    position = int(per_position.argmax())
    activation = result.arrays["activations"][:, position].astype(np.float64)
    length = float(np.linalg.norm(activation))
    if not (per_position[position] > 0 and 0 < length < np.inf):
        return None
    return Candidate(index, position, activation / length, float(per_position[position]), result.target.logit)


def choose(candidates: Sequence[Candidate], count: int) -> tuple[list[Candidate], float]:
    """At most `count` candidates by descending contribution, no two with a cosine above a limit; also the limit.

    How similar activations are depends on the layer: in a late layer all those of one class are. So the limit is a
    quantile of the cosines between the candidates, the lowest of a few quantiles with which there are enough.
    """
    ranked = sorted(candidates, key=lambda one: (-one.contribution, one.index))
    if not ranked:
        return [], 1.0
    vectors = np.stack([one.vector for one in ranked])
    cosines = vectors @ vectors.T
    pairs = cosines[np.triu_indices(len(ranked), 1)]
    chosen, limit = [0], 1.0
    for quantile in _QUANTILES if len(pairs) else ():
        limit = float(np.quantile(pairs, quantile))
        chosen = []
        for place in range(len(ranked)):
            if len(chosen) < count and all(cosines[place, other] <= limit for other in chosen):
                chosen.append(place)
        if len(chosen) == count:
            break
    return [ranked[place] for place in chosen], limit
