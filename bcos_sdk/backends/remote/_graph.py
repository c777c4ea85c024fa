"""A graph that a server runs: a run is one request."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bcos_sdk.backends._graph import Arrays, Feed, Graph, TensorSpec
from bcos_sdk.backends.remote._served import ServedModel
from bcos_sdk.contract import IMAGE, WEIGHTS
from bcos_sdk.errors import InputError, ServerAnswerError

__all__ = ["RemoteGraph"]


class RemoteGraph(Graph):
    """One of the models NAME and NAME_explain of a server."""

    def __init__(self, served: ServedModel, model: str) -> None:
        self._served = served
        self._model = model

    def run(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Arrays:
        known = self._served.outputs_of(self._model)
        if missing := [name for name in outputs if name not in known]:
            raise self._not_sent(missing[0])
        inputs = {name: np.asarray(array) for name, array in feed.items()}
        images = inputs.pop(IMAGE.name)
        if self._served.takes_pixels and images.dtype == np.uint8:
            colours = self._served.metadata[self._served.address.model].inputs[self._served.image][1][-1]
            images = images[..., :colours]  # the channels of a grey picture are equal
        elif self._served.takes_pixels:
            raise InputError(
                f"{self._served.address} takes 8-bit pixels, but this image was passed encoded",
                source="image",
                hint="Pass a picture or uint8 pixels.",
            )
        return self._served.infer(self._model, {self._served.image: images, **inputs}, outputs)

    def _not_sent(self, name: str) -> Exception:
        address = self._served.address
        if name == WEIGHTS.name:
            return InputError(
                f"{address} does not send W(x)",
                source="weights",
                hint="Leave weights=True out, or let the server send it.",
            )
        return ServerAnswerError(f"{address}: {self._model} has no output {name}", source=str(address))

    def stop(self) -> None:
        self._served.transport.stop()

    def close(self) -> None:
        """The transport belongs to the backend."""
