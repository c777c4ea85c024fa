"""The interface between a client and whatever computes: two calls on ready batches."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import Device
from bcos_sdk.contract import ExplainOutputs, Precision

__all__ = ["Backend"]

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


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
