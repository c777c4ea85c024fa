"""The interface between a client and whatever computes: two calls on ready batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bcos_sdk._precision import Precision
from bcos_sdk.backends._devices import Device

__all__ = ["Backend", "ExplainOutputs"]

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ExplainOutputs:
    """What the explain graph says of B images and K targets each; nobody else holds these arrays."""

    logits: Floats  # [B, classes]
    classes: Integers  # [B, K]: ranks resolved
    contributions: Floats  # [B, K, H, W]
    bias_terms: Floats  # [B, K, terms]
    weights: Floats | None = None  # [B, K, 6, H, W], if asked for

    def __getitem__(self, images: slice) -> ExplainOutputs:
        """The outputs of some of the images."""
        return ExplainOutputs(
            logits=self.logits[images],
            classes=self.classes[images],
            contributions=self.contributions[images],
            bias_terms=self.bias_terms[images],
            weights=None if self.weights is None else self.weights[images],
        )

    @classmethod
    def joined(cls, parts: Sequence[ExplainOutputs]) -> ExplainOutputs:
        """The same images with the targets of all parts; their logits are the same in each."""
        if len(parts) == 1:
            return parts[0]
        weights = [part.weights for part in parts if part.weights is not None]
        return cls(
            logits=parts[0].logits,
            classes=np.concatenate([part.classes for part in parts], axis=1),
            contributions=np.concatenate([part.contributions for part in parts], axis=1),
            bias_terms=np.concatenate([part.bias_terms for part in parts], axis=1),
            weights=np.concatenate(weights, axis=1) if weights else None,
        )


class Backend(Protocol):
    """Runs one bundle on one device. It is called from one thread at a time.

    What goes wrong is raised as a `BcosError`: `OutOfMemoryError` if a smaller batch may help.
    """

    @property
    def device(self) -> Device:
        """Where it really runs."""

    @property
    def precision(self) -> Precision:
        """How exactly it really multiplies."""

    def predict(self, images: Floats) -> Floats:
        """[B, 6, H, W] → logits [B, classes], without the cost of an explanation."""

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        """[B, 6, H, W] and [B, K] → logits and explanations."""

    def close(self) -> None:
        """Give back the device's memory; the backend is not used afterwards."""
