"""The self-test: before a graph is used on a device, it must reproduce the golden record of its bundle there.

The certificate of an explanation compares it with the logit from the same run. It cannot detect a device, a runtime
or a weights file that changes both consistently. The golden record comes from float64 torch, so it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._backend import Backend
from bcos_sdk.backends._graph import Floats, Integers
from bcos_sdk.backends._runtime import Device
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import LOGITS, WEIGHTS, ExplainOutputs, Precision
from bcos_sdk.errors import SelfTestError
from bcos_sdk.images import encode

__all__ = ["SelfTestedBackend"]

# Factors on the limits of the export. Devices round differently, but a broken one is further off than this. The
# limits of fp16 are large already, so their factor is small.
_FACTORS = {"fp32": 10, "fp16": 2}
_LARGEST_ERROR = 0.2
# TF32 has as many significant bits as fp16, and no export measures it.
_TF32_LIMITS = {LOGITS.name: 4e-3, WEIGHTS.name: 8e-2}


class SelfTestedBackend:
    """A backend that runs the golden image through each graph before its first use, or at once with `on_open`.

    If the runtime compiles per size, each size is tested before its first use.
    """

    def __init__(self, backend: Backend, bundle: Bundle, *, on_open: bool) -> None:
        self._backend = backend
        self._bundle = bundle
        self._golden = bundle.golden()
        self._image = encode(self._golden.pixels)[None]
        self._tested: set[tuple[object, ...]] = set()
        if on_open:
            self._test_once(self._test_predict, 1)
            self._test_once(self._test_explain, 1, 1)

    @property
    def device(self) -> Device:
        return self._backend.device

    @property
    def precision(self) -> Precision:
        return self._backend.precision

    def predict(self, images: Floats) -> Floats:
        self._test_once(self._test_predict, len(images) if self.device.runtime.compiles_per_size else 1)
        return self._backend.predict(images)

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        count, targets_per_image = targets.shape
        if not self.device.runtime.compiles_per_size:
            self._test_once(self._test_explain, 1, 1)
        elif targets_per_image > 1:  # one compiled graph takes any number of targets of one image
            self._test_once(self._test_explain, 1, 2)
        else:
            self._test_once(self._test_explain, count, 1)
        return self._backend.explain(images, targets, weights=weights)

    def stop(self) -> None:
        self._backend.stop()

    def close(self) -> None:
        self._backend.close()

    def _test_once(self, test: Callable[..., None], *sizes: int) -> None:
        if (test, *sizes) not in self._tested:
            test(*sizes)
            self._tested.add((test, *sizes))

    def _test_predict(self, count: int) -> None:
        for logits in self._backend.predict(np.repeat(self._image, count, axis=0)):
            self._compare(LOGITS.name, logits, self._golden.logits)

    def _test_explain(self, count: int, targets_per_image: int) -> None:
        images = np.repeat(self._image, count, axis=0)
        targets = np.full((count, targets_per_image), self._golden.target, np.int64)
        outputs = self._backend.explain(images, targets, weights=True)
        assert outputs.weights is not None
        for logits, rows in zip(outputs.logits, outputs.weights, strict=True):
            self._compare(LOGITS.name, logits, self._golden.logits)
            for weights in rows:
                self._compare(WEIGHTS.name, weights, self._golden.weights)

    def _compare(self, name: str, value: npt.NDArray[Any], golden: npt.NDArray[Any]) -> None:
        difference, limit = _relative_l2(value, golden), self._limit(name)
        if not difference <= limit:  # also if it is NaN
            raise SelfTestError(
                f"self-test failed on {self.device}: {name} differ from the golden record by {difference:.1e} "
                f"(relative L2), limit {limit:.1e}",
                source=str(self._bundle.path),
                hint='The bundle was changed, or the device computes wrong results: try device="cpu", or export the '
                "model again.",
            )

    def _limit(self, name: str) -> float:
        manifest = self._bundle.manifest
        if self.precision == "tf32":
            return max(_TF32_LIMITS[name], manifest.parity_limits[name])
        return min(_FACTORS[manifest.precision] * manifest.parity_limits[name], _LARGEST_ERROR)


def _relative_l2(value: npt.NDArray[Any], golden: npt.NDArray[Any]) -> float:
    """‖value − golden‖ / ‖golden‖. If `golden` is zero: 0 if `value` is zero as well, else infinity."""
    distance = float(np.linalg.norm((value - golden).astype(np.float64)))
    size = float(np.linalg.norm(golden.astype(np.float64)))
    if size == 0:
        return 0.0 if distance == 0 else math.inf
    return distance / size
