"""Each graph proves itself before it is used: on this device it must say what the network in torch said at export.

The certificate cannot show that. It sees that an explanation adds up to the logit beside it; it does not see a
device, a runtime or a weights file that changes both alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._precision import Precision
from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._interface import Backend, ExplainOutputs, Floats, Integers
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import SelfTestError
from bcos_sdk.images import encode

__all__ = ["SelfTestedBackend"]

# Devices round differently; what is broken is further off than that. The limits of half leave less room above them.
_TIMES_PARITY = {"fp32": 10, "fp16": 2}
_TF32_LIMITS = {"logits": 4e-3, "weights": 8e-2}  # as many digits as half, and no export that measured them


class SelfTestedBackend:
    """A backend that runs the bundle's golden image through each graph when it is first used, or at once."""

    def __init__(self, backend: Backend, bundle: Bundle, *, at_once: bool) -> None:
        self._backend = backend
        self._bundle = bundle
        self._golden = bundle.golden()
        self._image = encode(self._golden.pixels)[None]
        self._tested: set[Callable[[], None]] = set()
        if at_once:  # whether a device takes the graphs, and computes them rightly, shows only now
            self._once(self._test_predict)
            self._once(self._test_explain)

    @property
    def device(self) -> Device:
        return self._backend.device

    @property
    def precision(self) -> Precision:
        return self._backend.precision

    def predict(self, images: Floats) -> Floats:
        self._once(self._test_predict)
        return self._backend.predict(images)

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        self._once(self._test_explain)
        return self._backend.explain(images, targets, weights=weights)

    def close(self) -> None:
        self._backend.close()

    def _once(self, test: Callable[[], None]) -> None:
        if test not in self._tested:
            test()
            self._tested.add(test)

    def _test_predict(self) -> None:
        self._compare("logits", self._backend.predict(self._image)[0], self._golden.logits)

    def _test_explain(self) -> None:
        targets = np.array([[self._golden.target]], np.int64)
        outputs = self._backend.explain(self._image, targets, weights=True)
        self._compare("logits", outputs.logits[0], self._golden.logits)
        assert outputs.weights is not None
        self._compare("weights", outputs.weights[0, 0], self._golden.weights)

    def _compare(self, name: str, value: npt.NDArray[Any], truth: npt.NDArray[Any]) -> None:
        distance = float(np.linalg.norm((value - truth).astype(np.float64)))
        size = float(np.linalg.norm(truth.astype(np.float64)))
        limit = self._limit(name)
        if not distance <= limit * size:
            raise SelfTestError(
                f"{self._bundle.path} does not give on {self.device} what it gave when it was exported: "
                f"{name} of size {size:.1e} are off by {distance:.1e}, more than {limit:.1e} of that",
                source=str(self._bundle.path),
                hint='The bundle was changed or the device computes wrongly: try device="cpu", or export it again.',
            )

    def _limit(self, name: str) -> float:
        manifest = self._bundle.manifest
        if self.precision == "tf32":
            return max(_TF32_LIMITS[name], manifest.parity_limits[name])
        return _TIMES_PARITY[manifest.precision] * manifest.parity_limits[name]
