"""The backend of a client whose model is behind a server, with the self-test of the model there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from bcos_sdk.backends._backend import Backend, GraphBackend
from bcos_sdk.backends._runtime import Device
from bcos_sdk.backends._selftest import SelfTestedBackend
from bcos_sdk.backends.remote._runtime import RemoteRuntime
from bcos_sdk.backends.remote._served import ServedModel
from bcos_sdk.contract import LOGITS, WEIGHTS, ExplainOutputs, Integers, Precision
from bcos_sdk.errors import UnknownLayerError
from bcos_sdk.images import stand_in

__all__ = ["backend_of"]


class WithoutLayers:
    """A server runs only the models NAME and NAME_explain."""

    device: Device

    def refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise UnknownLayerError(
            f"{self.device} does not serve inner layers",
            source="layer",
            hint="Open the bundle on this machine for features, explain_features and explain_layer.",
        )

    features = relay = explain_layer = refuse


class RemoteBackend(WithoutLayers, GraphBackend):
    """Runs both graphs on a server. Several requests may be on their way at once."""

    def __init__(self, served: ServedModel, connections: int) -> None:
        super().__init__(served.bundle, Device(RemoteRuntime(served)))
        self._served = served
        self._connections = connections

    @property
    def precision(self) -> Precision:
        return self._served.precision

    @property
    def takes_pixels(self) -> bool:
        return self._served.takes_pixels

    @property
    def runs_at_once(self) -> int:
        return self._connections

    def start_explain(self, images: Any, targets: Integers, *, weights: bool) -> Callable[[], ExplainOutputs]:
        """Explain in several requests if the server takes fewer targets at once."""
        most = self._served.most_targets
        start = super().start_explain
        parts = [start(images, targets[:, i : i + most], weights=weights) for i in range(0, targets.shape[1], most)]
        return lambda: ExplainOutputs.joined([part() for part in parts])

    def stop(self) -> None:
        super().stop()
        self._served.transport.stop()

    def close(self) -> None:
        super().close()
        self._served.transport.close()


class SelfTestedRemoteBackend(WithoutLayers, SelfTestedBackend):
    """Sends the golden image to the server before the first use of each of its models."""

    advice = "The server has another model or computes wrong results. Restart it with the bundle that you want."

    def __init__(self, backend: RemoteBackend, served: ServedModel) -> None:
        without_layers = served.bundle.manifest.model_copy(update={"layers": None})
        super().__init__(backend, replace(served.bundle, manifest=without_layers), on_open=False)
        self._served = served
        self._kinds = self._kinds[:1]  # a server takes either pixels or encoded images

    def _test_explain(self, count: int, targets_per_image: int) -> None:
        """Compare W(x); if the server does not send it, the contributions Σ over channels of W(x) ⊙ x."""
        if WEIGHTS.name in self._served.outputs_of(self._served.explain_model):
            super()._test_explain(count, targets_per_image)
            return
        golden = self._golden
        outputs = self._backend.explain(self._image, np.array([[golden.target]]), weights=False)
        self._compare(LOGITS.name, outputs.logits[0], golden.logits)
        encoded = stand_in(golden.pixels, self._served.bundle.manifest.input)
        expected = np.einsum("chw,chw->hw", golden.weights, encoded)
        self._compare(WEIGHTS.name, outputs.contributions[0, 0], expected, golden.jump or 0.0)


def backend_of(served: ServedModel, connections: int) -> Backend:
    """The backend of a served model; self-tested if its golden record could be obtained."""
    backend = RemoteBackend(served, connections)
    return SelfTestedRemoteBackend(backend, served) if served.bundle.contents else backend
