"""logits = W·x + b with a fixed random W: the model of a `FakeClient`, computed in numpy.

W = A·P with few patterns P, so that it stays small for a thousand classes. Explanations are rows of W, so they really
add up to the logits.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import Device, RunsAtOnce
from bcos_sdk.contract import (
    CHANNELS,
    ExplainOutputs,
    FeatureOutputs,
    Floats,
    Integers,
    LayerOutputs,
    Precision,
    RelayOutputs,
    mean_target,
)
from bcos_sdk.errors import UnknownLayerError

__all__ = ["LinearBackend"]

_PATTERNS = 8
_NO_LAYERS = "the linear model has no layers"
_COARSE = 6
"""Patterns are constant in each cell of a grid of this many rows and columns."""
_SPREAD = 20.0
"""Chosen so that the logits of photographs differ by a few units."""


class LinearBackend(RunsAtOnce):
    """Runs the linear model. Equal arguments give equal results, on every machine.

    With `tf32`, a GPU reports the precision of TF32, as a real backend does. The numbers are the same.
    """

    takes_pixels = False
    wide_batches = False

    def __init__(self, device: Device, classes: int, size: tuple[int, int], *, tf32: bool, delay: float) -> None:
        self._device = device
        self.precision: Precision = "tf32" if tf32 and device.runtime.on_gpu else "fp32"
        self._delay = delay
        self._stopped = threading.Event()
        generator = np.random.default_rng(0)
        of_colours = generator.standard_normal((_PATTERNS, CHANNELS // 2, _COARSE, _COARSE))
        coarse = np.concatenate([of_colours, -of_colours], axis=1)  # of rgb and 1 − rgb: grey has no part in a logit
        rows, columns = (np.arange(side) * _COARSE // side for side in size)
        self._patterns = coarse[:, :, rows][..., columns] * (_SPREAD / (size[0] * size[1]))
        mixtures = generator.standard_normal((classes, _PATTERNS))
        bias = generator.standard_normal(classes) * 0.25
        # The last row is the mean of all classes, which is a target as well.
        self._mixtures = np.concatenate([mixtures, mixtures.mean(0, keepdims=True)])
        self._bias = np.append(bias, bias.mean())

    @property
    def device(self) -> Device:
        return self._device

    def predict(self, images: Floats) -> Floats:
        self._stopped.wait(self._delay)
        return self._logits(images)

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        self._stopped.wait(self._delay)
        logits = self._logits(images)
        ranked = np.argsort(-logits, axis=1, kind="stable")
        by_rank = np.take_along_axis(ranked, np.maximum(-targets - 1, 0), axis=1)
        classes: npt.NDArray[np.int64] = np.where(targets < 0, by_rank, targets)
        rows = np.tensordot(self._mixtures[classes], self._patterns, 1)  # [B, K, 6, H, W]
        return ExplainOutputs(
            logits=logits,
            classes=classes,
            contributions=np.einsum("bkchw,bchw->bkhw", rows, images.astype(np.float64)).astype(np.float32),
            bias_terms=self._bias[classes][..., None].astype(np.float32),
            weights=rows.astype(np.float32) if weights else None,
        )

    def features(self, images: Floats, layers: tuple[int, ...]) -> FeatureOutputs:  # noqa: ARG002 - there are none
        raise UnknownLayerError(_NO_LAYERS)

    def relay(self, images: Floats, targets: Integers, layer: int) -> RelayOutputs:  # noqa: ARG002
        raise UnknownLayerError(_NO_LAYERS)

    def explain_layer(
        self,
        images: Floats,  # noqa: ARG002
        layer: int,  # noqa: ARG002
        positions: Integers,  # noqa: ARG002
        directions: Floats,  # noqa: ARG002
    ) -> LayerOutputs:
        raise UnknownLayerError(_NO_LAYERS)

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """There is nothing to free."""

    def _logits(self, images: Floats) -> Floats:
        of_patterns = np.tensordot(images.astype(np.float64), self._patterns, ([1, 2, 3], [1, 2, 3]))
        classes = slice(mean_target(len(self._bias) - 1))
        logits: Floats = (of_patterns @ self._mixtures[classes].T + self._bias[classes]).astype(np.float32)
        return logits
