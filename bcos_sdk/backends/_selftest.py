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

from bcos_sdk._logs import log
from bcos_sdk.backends._backend import Backend
from bcos_sdk.backends._graph import Floats, ImageList, Images, Integers
from bcos_sdk.backends._runtime import Device
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import LOGITS, WEIGHTS, ExplainOutputs, FeatureOutputs, LayerOutputs, Precision, RelayOutputs
from bcos_sdk.errors import SelfTestError
from bcos_sdk.images import stand_in

__all__ = ["SelfTestedBackend"]

# Factors on the limits of the export. Devices round differently, but a broken one is further off than this. The
# limits of fp16 are large already, so their factor is small.
_FACTORS = {"fp32": 10, "fp16": 2}
_LARGEST_ERROR = 0.2
# Where choices such as those of ReLUs are nearly ties, W(x) jumps. The golden record says how far, but not for layers.
_JUMP_OF_LAYERS = 0.1
# TF32 has as many significant bits as fp16, and no export measures it.
_TF32_LIMITS = {LOGITS.name: 4e-3, WEIGHTS.name: 8e-2}


class SelfTestedBackend:
    """A backend that runs the golden image through each graph before its first use, or at once with `on_open`.

    If the runtime compiles per size, each size is tested before its first use.
    """

    advice = (
        'The bundle was changed, or the device computes wrong results: try device="cpu", or export the model again.'
    )

    def __init__(self, backend: Backend, bundle: Bundle, *, on_open: bool) -> None:
        self._backend = backend
        self._bundle = bundle
        self._golden = bundle.golden()
        self._layers = bundle.golden_layers()
        pixels = self._golden.pixels[None]
        encoded = stand_in(self._golden.pixels, bundle.manifest.input)[None]
        self._kinds: list[Images] = [pixels, encoded] if backend.takes_pixels else [encoded]
        """The golden image in each form that the backend takes, the usual one first."""
        self._image = self._kinds[0]
        self._tested: set[tuple[object, ...]] = set()
        self._ran_in_tf32 = False
        if on_open:
            self._test_once(self._test_predict, 1)
            self._test_once(self._test_explain, 1, 1)

    @property
    def device(self) -> Device:
        return self._backend.device

    @property
    def precision(self) -> Precision:
        """What the device computes with: TF32 if the self-test has shown that the runtime uses it unasked."""
        return "tf32" if self._ran_in_tf32 else self._backend.precision

    @property
    def takes_pixels(self) -> bool:
        return self._backend.takes_pixels

    @property
    def wide_batches(self) -> bool:
        return self._backend.wide_batches

    @property
    def overlaps_runs(self) -> bool:
        return self._backend.overlaps_runs

    @property
    def runs_at_once(self) -> int:
        return self._backend.runs_at_once

    def start_predict(self, images: Images | ImageList) -> Callable[[], Floats]:
        self._test_once(self._test_predict, self._count(images))
        return self._backend.start_predict(images)

    def start_explain(
        self, images: Images | ImageList, targets: Integers, *, weights: bool
    ) -> Callable[[], ExplainOutputs]:
        self._test_once(self._test_explain, *self._sizes(targets))
        return self._backend.start_explain(images, targets, weights=weights)

    def predict(self, images: Images) -> Floats:
        self._test_once(self._test_predict, self._count(images))
        return self._backend.predict(images)

    def explain(self, images: Images, targets: Integers, *, weights: bool) -> ExplainOutputs:
        self._test_once(self._test_explain, *self._sizes(targets))
        return self._backend.explain(images, targets, weights=weights)

    def features(self, images: Images, layers: tuple[int, ...]) -> FeatureOutputs:
        for layer in layers:
            self._test_once(self._test_features, layer, self._count(images))
        return self._backend.features(images, layers)

    def relay(self, images: Images, targets: Integers, layer: int) -> RelayOutputs:
        self._test_once(self._test_relay, layer, *self._sizes(targets))
        return self._backend.relay(images, targets, layer)

    def explain_layer(self, images: Images, layer: int, positions: Integers, directions: Floats) -> LayerOutputs:
        self._test_once(self._test_layer, layer, *self._sizes(positions))
        return self._backend.explain_layer(images, layer, positions, directions)

    def _count(self, images: Images | ImageList) -> int:
        return len(images) if self.device.runtime.compiles_per_size else 1

    def _sizes(self, targets: Integers) -> tuple[int, int]:
        """The numbers of images and of targets to test: one compiled graph takes any number of targets of one image."""
        count, targets_per_image = targets.shape
        if not self.device.runtime.compiles_per_size:
            return 1, 1
        return (1, 2) if targets_per_image > 1 else (count, 1)

    def stop(self) -> None:
        self._backend.stop()

    def close(self) -> None:
        self._backend.close()

    def _test_once(self, test: Callable[..., None], *sizes: int) -> None:
        if (test, *sizes) not in self._tested:
            test(*sizes)
            self._tested.add((test, *sizes))

    def _test_predict(self, count: int) -> None:
        for image in self._kinds:
            for logits in self._backend.predict(np.repeat(image, count, axis=0)):
                self._compare(LOGITS.name, logits, self._golden.logits)

    def _test_explain(self, count: int, targets_per_image: int) -> None:
        images = np.repeat(self._image, count, axis=0)
        targets = np.full((count, targets_per_image), self._golden.target, np.int64)
        outputs = self._backend.explain(images, targets, weights=True)
        assert outputs.weights is not None
        for logits, rows in zip(outputs.logits, outputs.weights, strict=True):
            self._compare(LOGITS.name, logits, self._golden.logits)
            for weights in rows:
                self._compare(WEIGHTS.name, weights, self._golden.weights, self._golden.jump or 0.0)

    def _test_features(self, layer: int, count: int) -> None:
        """The activations themselves are not in the record; ⟨direction, activation⟩ of its query is their test."""
        golden = self._layers[layer]
        outputs = self._backend.features(np.repeat(self._image, count, axis=0), (layer,))
        value = self._backend.explain_layer(self._image, layer, *golden.query(1, 1)).value[0, 0]
        for logits, activations in zip(outputs.logits, outputs.activations[0], strict=True):
            self._compare(LOGITS.name, logits, self._golden.logits)
            matrix = activations.T if activations.ndim == 2 else activations.reshape(len(activations), -1)
            self._compare(LOGITS.name, np.array(golden.direction @ matrix[:, golden.position]), np.array(value))

    def _test_relay(self, layer: int, count: int, targets_per_image: int) -> None:
        images = np.repeat(self._image, count, axis=0)
        targets = np.full((count, targets_per_image), self._golden.target, np.int64)
        outputs = self._backend.relay(images, targets, layer)
        for logits, rows in zip(outputs.logits, outputs.features, strict=True):
            self._compare(LOGITS.name, logits, self._golden.logits)
            for features in rows:
                self._compare(WEIGHTS.name, features, self._layers[layer].features, self._jump_of_layers)

    def _test_layer(self, layer: int, count: int, queries: int) -> None:
        golden = self._layers[layer]
        images = np.repeat(self._image, count, axis=0)
        for rows in self._backend.explain_layer(images, layer, *golden.query(count, queries)).weights:
            for weights in rows:
                self._compare(WEIGHTS.name, weights, golden.weights, self._jump_of_layers)

    @property
    def _jump_of_layers(self) -> float:
        return 0.0 if self._golden.jump is None else _JUMP_OF_LAYERS

    def _compare(self, name: str, value: npt.NDArray[Any], golden: npt.NDArray[Any], jump: float = 0.0) -> None:
        difference, limit = _relative_l2(value, golden), self._limit(name, jump)
        may_fall = self.device.runtime.may_use_tf32_unasked and self.precision == "fp32"
        if limit < difference <= _TF32_LIMITS[name] and may_fall:
            log.warning(
                "%s rounds products to TF32 although it was not asked to: %s differ from the golden record by %.1e; "
                'results have precision "tf32" and its tolerance. The devices "tensorrt" and "cpu" compute in float32',
                self.device,
                name,
                difference,
            )
            self._ran_in_tf32 = True
            return
        if not difference <= limit:  # also if it is NaN
            raise SelfTestError(
                f"self-test failed on {self.device}: {name} differ from the golden record by {difference:.1e} "
                f"(relative L2), limit {limit:.1e}",
                source=str(self._bundle.path),
                hint=self.advice,
            )

    def _limit(self, name: str, jump: float) -> float:
        manifest = self._bundle.manifest
        if self.precision == "tf32":
            return max(_TF32_LIMITS[name], manifest.parity_limits[name] + jump)
        return min(_FACTORS[manifest.precision] * manifest.parity_limits[name] + jump, _LARGEST_ERROR)


def _relative_l2(value: npt.NDArray[Any], golden: npt.NDArray[Any]) -> float:
    """‖value − golden‖ / ‖golden‖. If `golden` is zero: 0 if `value` is zero as well, else infinity."""
    distance = float(np.linalg.norm((value - golden).astype(np.float64)))
    size = float(np.linalg.norm(golden.astype(np.float64)))
    if size == 0:
        return 0.0 if distance == 0 else math.inf
    return distance / size
