"""A bundle's graphs behind the interface of a backend, whatever it is that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._interface import Floats, Integers
from bcos_sdk.bundle import Bundle, Manifest
from bcos_sdk.contract import ExplainOutputs, Precision, explain_grid_by_rows
from bcos_sdk.errors import ClientClosedError

__all__ = ["Arrays", "Graph", "GraphBackend", "Tensor", "explain_outputs"]

Arrays = dict[str, npt.NDArray[Any]]
_BY_ROWS = ("openvino",)  # it lays channels last, so that reshapes around a grid of targets cost it copies


@dataclass(frozen=True)
class Tensor:
    """The shape and dtype of an output, known before the graph runs."""

    shape: tuple[int, ...]
    dtype: str


class Graph(Protocol):
    """One graph, ready to run."""

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        """The outputs asked for; nobody else holds their arrays. What goes wrong is raised as a `BcosError`."""

    def close(self) -> None:
        """Give back the device's memory."""


class GraphBackend:
    """Opens each graph when it is first used: who only predicts never loads the explain graph."""

    def __init__(
        self, bundle: Bundle, device: Device, open_graph: Callable[[Path], Graph], *, tf32: bool = False
    ) -> None:
        self._bundle = bundle
        self._device = device
        self._open_graph = open_graph
        self._tf32 = tf32
        self._graphs: dict[Path, Graph] = {}
        self._closed = False

    @property
    def device(self) -> Device:
        return self._device

    @property
    def precision(self) -> Precision:
        coarser = self._tf32 and self._device.is_gpu and self._bundle.manifest.precision == "fp32"
        return "tf32" if coarser else self._bundle.manifest.precision

    def predict(self, images: Floats) -> Floats:
        tensors = {"logits": Tensor((len(images), self._bundle.manifest.classes), "float32")}
        logits: Floats = self._graph(self._bundle.predict_graph).run({"image": images}, tensors)["logits"]
        return logits

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        by_rows = self._bundle.explain_rows_graph if self._device.kind in _BY_ROWS else None
        graph = self._graph(by_rows or self._bundle.explain_graph)

        def run(images: Floats, targets: Integers) -> Arrays:
            tensors = explain_outputs(self._bundle.manifest, len(images), targets.shape, weights=weights)
            return graph.run({"image": images, "targets": targets}, tensors)

        return ExplainOutputs(**(explain_grid_by_rows(run, images, targets) if by_rows else run(images, targets)))

    def close(self) -> None:
        self._closed = True
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _graph(self, path: Path) -> Graph:
        if self._closed:
            raise ClientClosedError("this backend is closed")
        if path not in self._graphs:
            self._graphs[path] = self._open_graph(path)
        return self._graphs[path]


def explain_outputs(manifest: Manifest, batch: int, rows: tuple[int, ...], *, weights: bool) -> dict[str, Tensor]:
    """Name, shape and dtype of what is fetched from an explain graph for targets of shape `rows`."""
    return {
        port.name: Tensor(port.shape(batch, rows, manifest.sizes), port.dtype)
        for port in ExplainOutputs.ports(weights=weights)
    }
