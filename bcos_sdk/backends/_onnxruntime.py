"""ONNX Runtime: on the CPU, on CUDA, or with TensorRT as its provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from bcos_sdk.backends._binding import BoundGraph, Tensor
from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._interface import ExplainOutputs, Floats, Integers
from bcos_sdk.backends._sessions import open_session, provider_options, translate_error
from bcos_sdk.bundle import Bundle, Manifest
from bcos_sdk.errors import BcosError, ClientClosedError

__all__ = ["OnnxRuntimeBackend", "explain_outputs"]

Arrays = dict[str, npt.NDArray[Any]]


class _Graph(Protocol):
    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays: ...


class HostGraph:
    """A graph on the CPU: arrays are handed over as they are."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        names = list(outputs)
        return dict(zip(names, self._session.run(names, dict(feed)), strict=True))


class OnnxRuntimeBackend:
    """Two sessions, each made when it is first used: who only predicts never loads the explain graph."""

    def __init__(self, bundle: Bundle, device: Device, *, threads: int | None = None) -> None:
        self._bundle = bundle
        self._device = device
        self._threads = threads
        self._graphs: dict[Path, _Graph] = {}
        self._closed = False

    @property
    def device(self) -> Device:
        return self._device

    def predict(self, images: Floats) -> Floats:
        tensors = {"logits": Tensor((len(images), self._bundle.manifest.classes), "float32")}
        logits: Floats = self._run(self._bundle.predict_graph, {"image": images}, tensors)["logits"]
        return logits

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        tensors = explain_outputs(self._bundle.manifest, *targets.shape, weights=weights)
        feed: Arrays = {"image": images, "targets": targets}
        return ExplainOutputs(**self._run(self._bundle.explain_graph, feed, tensors))

    def close(self) -> None:
        self._closed = True
        self._graphs.clear()

    def _run(self, graph: Path, feed: Arrays, outputs: dict[str, Tensor]) -> Arrays:
        try:
            return self._graph(graph).run(feed, outputs)
        except BcosError:
            raise
        except Exception as error:  # ONNX Runtime's errors have no common base but this
            raise translate_error(error, len(feed["image"])) from error

    def _graph(self, path: Path) -> _Graph:
        if self._closed:
            raise ClientClosedError("this backend is closed")
        if path not in self._graphs:
            providers = provider_options(self._device, self._bundle, path)
            session = open_session(path, self._device, self._threads, providers)
            self._graphs[path] = HostGraph(session) if self._device.kind == "cpu" else BoundGraph(session, self._device)
        return self._graphs[path]


def explain_outputs(manifest: Manifest, batch: int, targets: int, *, weights: bool) -> dict[str, Tensor]:
    """Name, shape and dtype of what is fetched from the explain graph; W(x) is large and fetched on request only."""
    height, width = manifest.input.size
    rows = (batch, targets)
    tensors = {
        "logits": Tensor((batch, manifest.classes), "float32"),
        "classes": Tensor(rows, "int64"),
        "contributions": Tensor((*rows, height, width), "float32"),
        "bias_terms": Tensor((*rows, len(manifest.bias_terms)), "float32"),
    }
    return tensors | ({"weights": Tensor((*rows, 6, height, width), "float32")} if weights else {})
