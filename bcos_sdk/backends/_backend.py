"""The interface between the client and the runtimes, and its implementation by the graphs of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bcos_sdk.backends._graph import Arrays, Floats, Graph, Integers, check_outputs, explain_specs, output_specs
from bcos_sdk.backends._runtime import Device, OpenOptions
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import (
    IMAGE,
    LOGITS,
    PREDICT_OUTPUTS,
    TARGETS,
    ExplainOutputs,
    Layout,
    Precision,
    explain_grid_by_rows,
)
from bcos_sdk.errors import ClientClosedError

__all__ = ["Backend", "GraphBackend"]


class Backend(Protocol):
    """Runs one bundle on one device. Only one thread calls it at a time, except `stop`.

    Every failure is a `BcosError`; it is an `OutOfMemoryError` if a smaller batch may help.
    """

    @property
    def device(self) -> Device:
        """The device that computes."""

    @property
    def precision(self) -> Precision:
        """The precision of convolutions and matrix products on this device."""

    def predict(self, images: Floats) -> Floats:
        """Images [B, 6, H, W] → logits [B, classes], from the graph that computes no explanation."""

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        """Images [B, 6, H, W] and targets [B, K] → logits and explanations; W(x) only with `weights`."""

    def stop(self) -> None:
        """End the run of another thread as soon as the runtime can, and refuse new ones. Does not wait."""

    def close(self) -> None:
        """Free the memory of the device. The backend cannot be used afterwards."""


class GraphBackend:
    """Runs the graphs of a bundle. Each graph is loaded on first use, so a client that only predicts loads one."""

    def __init__(self, bundle: Bundle, device: Device, options: OpenOptions | None = None) -> None:
        self._bundle = bundle
        self._device = device
        self._options = options or OpenOptions()
        self._graphs: dict[Path, Graph] = {}
        self._stopped = False

    @property
    def device(self) -> Device:
        return self._device

    @property
    def precision(self) -> Precision:
        precision = self._bundle.manifest.precision
        is_tf32 = self._options.tf32 and self._device.runtime.on_gpu and precision == "fp32"
        return "tf32" if is_tf32 else precision

    def predict(self, images: Floats) -> Floats:
        specs = output_specs(PREDICT_OUTPUTS, self._bundle.manifest, len(images))
        outputs = self._graph(self._bundle.predict_graph).run({IMAGE.name: images}, specs)
        check_outputs(outputs, specs)
        logits: Floats = outputs[LOGITS.name]
        return logits

    def explain(self, images: Floats, targets: Integers, *, weights: bool) -> ExplainOutputs:
        path, layout = self._bundle.explain_graph_for(self._device.runtime.layout)
        graph = self._graph(path)

        def run(images: Floats, targets: Integers) -> Arrays:
            specs = explain_specs(self._bundle.manifest, len(images), targets.shape, weights=weights)
            outputs = graph.run({IMAGE.name: images, TARGETS.name: targets}, specs)
            check_outputs(outputs, specs)
            return outputs

        outputs = run(images, targets) if layout is Layout.GRID else explain_grid_by_rows(run, images, targets)
        return ExplainOutputs(**outputs)

    def stop(self) -> None:
        self._stopped = True
        for graph in list(self._graphs.values()):  # a copy: the running thread may load another graph
            graph.stop()

    def close(self) -> None:
        self._stopped = True
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _graph(self, path: Path) -> Graph:
        if path not in self._graphs and not self._stopped:
            runtime, index = self._device.runtime, self._device.index
            self._graphs[path] = runtime.open_graph(path, self._bundle, index, self._options)
        if self._stopped:  # also while the graph was loaded
            raise ClientClosedError("this backend is closed")
        return self._graphs[path]
