"""Each graph proves itself before it is used: on this device it must say what the network in torch said at export.

The certificate cannot show that. It sees that an explanation adds up to the logit beside it; it does not see a
device, a runtime or a weights file that changes both alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._interface import Backend, Floats, Integers
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import ExplainOutputs, Precision
from bcos_sdk.errors import SelfTestError
from bcos_sdk.images import encode

__all__ = ["SelfTestedBackend"]

# Devices round differently; what is broken is further off than that. The limits of half leave less room above them.
_TIMES_PARITY = {"fp32": 10, "fp16": 2}
_TF32_LIMITS = {"logits": 4e-3, "weights": 8e-2}  # as many digits as half, and no export that measured them


class SelfTestedBackend:
    """A backend that runs the bundle's golden image through each graph when it is first used, or at once.

    Where another size is another program, through that too.
    """

    def __init__(self, backend: Backend, bundle: Bundle, *, at_once: bool) -> None:
        self._backend = backend
        self._bundle = bundle
        self._golden = bundle.golden()
        self._image = encode(self._golden.pixels)[None]
        self._tested: set[tuple[object, ...]] = set()
        if at_once:  # whether a device takes the graphs, and computes them rightly, shows only now
            self._once(self._test_predict, 1)
            self._once(self._test_explain, 1, 1)

    @property
    def device(self) -> Device:
        return self._backend.device

    @property
    def precision(self) -> Precision:
        return self._backend.precision

    def predict(self, images: Floats) -> Floats:
        self._once(self._test_predict, len(images) if self._is_compiled_by_size else 1)
        return self._backend.predict(images)

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        count, several = targets.shape[0], targets.shape[1] > 1
        if not self._is_compiled_by_size:
            self._once(self._test_explain, 1, 1)
        elif several:
            self._once(self._test_explain, 1, 2)
        else:
            self._once(self._test_explain, count, 1)
        return self._backend.explain(images, targets, weights=weights)

    def close(self) -> None:
        self._backend.close()

    @property
    def _is_compiled_by_size(self) -> bool:
        """Whether other numbers of images or targets are other programs, of which each must prove itself."""
        return self.device.kind == "openvino"

    def _once(self, test: Callable[..., None], *sizes: int) -> None:
        if (test, *sizes) not in self._tested:
            test(*sizes)
            self._tested.add((test, *sizes))

    def _test_predict(self, count: int) -> None:
        for logits in self._backend.predict(np.repeat(self._image, count, axis=0)):
            self._compare("logits", logits, self._golden.logits)

    def _test_explain(self, count: int, targets: int) -> None:
        images = np.repeat(self._image, count, axis=0)
        asked = np.full((count, targets), self._golden.target, np.int64)
        outputs = self._backend.explain(images, asked, weights=True)
        assert outputs.weights is not None
        for logits, rows in zip(outputs.logits, outputs.weights, strict=True):
            self._compare("logits", logits, self._golden.logits)
            for weights in rows:
                self._compare("weights", weights, self._golden.weights)

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
