"""The interface between the client and the runtimes, and its implementation by the graphs of a bundle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._graph import (
    Arrays,
    Floats,
    Graph,
    ImageList,
    Images,
    Integers,
    TensorSpec,
    check_outputs,
    explain_specs,
    output_specs,
)
from bcos_sdk.backends._pixel_input import pixel_encoding
from bcos_sdk.backends._runtime import Device, OpenOptions
from bcos_sdk.bundle import Bundle, LayersRecord
from bcos_sdk.contract import (
    CLASSES,
    DIRECTIONS,
    IMAGE,
    LAYER_OUTPUTS,
    LOGITS,
    POSITIONS,
    PREDICT_OUTPUTS,
    TARGETS,
    ExplainOutputs,
    FeatureOutputs,
    LayerOutputs,
    Layout,
    Port,
    Precision,
    RelayOutputs,
    explain_grid_by_rows,
    layer_ports,
)
from bcos_sdk.errors import ClientClosedError, OutOfMemoryError

__all__ = ["Backend", "GraphBackend", "RunsAtOnce"]


class Backend(Protocol):
    """Runs one bundle on one device. At most `runs_at_once` threads call it at a time, and any thread `stop`.

    Every failure is a `BcosError`; it is an `OutOfMemoryError` if a smaller batch may help.
    """

    @property
    def device(self) -> Device:
        """The device that computes."""

    @property
    def precision(self) -> Precision:
        """The precision of convolutions and matrix products on this device."""

    @property
    def takes_pixels(self) -> bool:
        """Whether images may be uint8 pixels [B, H, W, 3] instead of encoded images [B, 6, H, W]."""

    @property
    def wide_batches(self) -> bool:
        """Whether the largest batch bounds images and targets each; otherwise it bounds images × targets."""

    @property
    def overlaps_runs(self) -> bool:
        """Whether a second run can be started while the first one is on the device."""

    @property
    def runs_at_once(self) -> int:
        """How many threads may call it at a time. More than one exclude `overlaps_runs`."""

    def start_predict(self, images: Images | ImageList) -> Callable[[], Floats]:
        """Start what `predict` does. The returned function waits for it. An `ImageList` needs `overlaps_runs`."""

    def start_explain(
        self, images: Images | ImageList, targets: Integers, *, weights: bool
    ) -> Callable[[], ExplainOutputs]:
        """Start what `explain` does. The returned function waits for it. An `ImageList` needs `overlaps_runs`."""

    def predict(self, images: Images) -> Floats:
        """Encoded images [B, 6, H, W], or pixels → logits [B, classes], from the graph that computes no explanation."""

    def explain(self, images: Images, targets: Integers, *, weights: bool) -> ExplainOutputs:
        """Images [B, 6, H, W] and targets [B, K] → logits and explanations; W(x) only with `weights`."""

    def features(self, images: Images, layers: tuple[int, ...]) -> FeatureOutputs:
        """Images → logits, and the outputs of the layers at these indices of the manifest."""

    def relay(self, images: Images, targets: Integers, layer: int) -> RelayOutputs:
        """Images and targets [B, K] → how much each activation of the layer adds to the logits of the targets."""

    def explain_layer(self, images: Images, layer: int, positions: Integers, directions: Floats) -> LayerOutputs:
        """Images, positions [B, K] and directions [B, K, channels] → values of the layer, explained by pixels."""

    def stop(self) -> None:
        """End the run of another thread as soon as the runtime can, and refuse new ones. Does not wait."""

    def close(self) -> None:
        """Free the memory of the device. The backend cannot be used afterwards."""


class RunsAtOnce:
    """The methods of a backend that starts no run before the last one has ended."""

    overlaps_runs = False
    runs_at_once = 1

    def start_predict(self, images: Any) -> Callable[[], Floats]:
        logits = self.predict(images)  # type: ignore[attr-defined]
        return lambda: logits

    def start_explain(self, images: Any, targets: Integers, *, weights: bool) -> Callable[[], ExplainOutputs]:
        outputs = self.explain(images, targets, weights=weights)  # type: ignore[attr-defined]
        return lambda: outputs


class GraphBackend:
    """Runs the graphs of a bundle. Each graph is loaded on first use, so a client that only predicts loads one."""

    def __init__(self, bundle: Bundle, device: Device, options: OpenOptions | None = None) -> None:
        self._bundle = bundle
        self._device = device
        self._options = options or OpenOptions()
        self._graphs: dict[Path, Graph] = {}
        self._most_rows: dict[Path, int] = {}
        """For each graph that ran out of memory, the most images × targets that may fit."""
        self._stopped = False

    @property
    def device(self) -> Device:
        return self._device

    @property
    def precision(self) -> Precision:
        precision = self._bundle.manifest.precision
        is_tf32 = self._options.tf32 and self._device.runtime.on_gpu and precision == "fp32"
        return "tf32" if is_tf32 else precision

    @property
    def takes_pixels(self) -> bool:
        known = pixel_encoding(self._bundle.manifest.input.channels) is not None
        return self._device.runtime.takes_pixels and known

    @property
    def wide_batches(self) -> bool:
        return self._device.runtime.wide_batches

    @property
    def overlaps_runs(self) -> bool:
        return self._device.runtime.overlaps_runs

    @property
    def runs_at_once(self) -> int:
        return 1

    def predict(self, images: Images) -> Floats:
        return self.start_predict(images)()

    def start_predict(self, images: Images | ImageList) -> Callable[[], Floats]:
        specs = output_specs(PREDICT_OUTPUTS, self._bundle.manifest, len(images))
        finish = self._graph(self._bundle.predict_graph).start({IMAGE.name: images}, specs)

        def logits() -> Floats:
            outputs = finish()
            check_outputs(outputs, specs)
            found: Floats = outputs[LOGITS.name]
            return found

        return logits

    def explain(self, images: Images | ImageList, targets: Integers, *, weights: bool) -> ExplainOutputs:
        path, layout = self._bundle.explain_graph_for(self._device.runtime.layout)

        def run(images: Images | ImageList, targets: Integers) -> Arrays:
            return self._start_explain(path, images, targets, weights)()

        if layout is Layout.GRID:
            return ExplainOutputs(**self._run_grid(path, run, images, targets))
        assert not isinstance(images, ImageList), "only runtimes with the layout GRID overlap runs"
        return ExplainOutputs(**explain_grid_by_rows(run, images, targets))

    def start_explain(
        self, images: Images | ImageList, targets: Integers, *, weights: bool
    ) -> Callable[[], ExplainOutputs]:
        path, _ = self._bundle.explain_graph_for(self._device.runtime.layout)
        if self.overlaps_runs and targets.size <= self._most_rows.get(path, targets.size):
            with contextlib.suppress(OutOfMemoryError):  # then it runs in halves
                finish = self._start_explain(path, images, targets, weights)
                return lambda: ExplainOutputs(**finish())
        outputs = self.explain(images, targets, weights=weights)
        return lambda: outputs

    def _start_explain(
        self, path: Path, images: Images | ImageList, targets: Integers, weights: bool
    ) -> Callable[[], Arrays]:
        specs = explain_specs(self._bundle.manifest, len(images), targets.shape, weights=weights)
        finish = self._graph(path).start({IMAGE.name: images, TARGETS.name: targets}, specs)

        def checked() -> Arrays:
            outputs = finish()
            check_outputs(outputs, specs)
            return outputs

        return checked

    def features(self, images: Images, layers: tuple[int, ...]) -> FeatureOutputs:
        found = [self._layer(layer) for layer in layers]
        ports = [activations for _, (activations, _, _) in found]
        specs = output_specs((LOGITS, *ports), self._bundle.manifest, len(images))
        outputs = self._graph(self._bundle.path / found[0][0].features_graph).run({IMAGE.name: images}, specs)
        check_outputs(outputs, specs)
        return FeatureOutputs(outputs[LOGITS.name], tuple(outputs[port.name] for port in ports))

    def relay(self, images: Images, targets: Integers, layer: int) -> RelayOutputs:
        layers, (activations, features, bias) = self._layer(layer)
        ports = (LOGITS, CLASSES, activations, features, bias)
        names = layers.relay_graph, layers.relay_rows_graph
        got = self._run_queries(names, ports, self._bundle.manifest.sizes, (TARGETS,), images, targets)
        parts = (got[port.name] for port in (LOGITS, activations, CLASSES, features, bias))
        return RelayOutputs(*parts)

    def explain_layer(self, images: Images, layer: int, positions: Integers, directions: Floats) -> LayerOutputs:
        record = self._bundle.manifest.layer_records[layer]
        sizes = self._bundle.manifest.sizes | {"bias_terms": len(record.bias_terms), "channels": record.channels}
        names = record.explain_graph, record.explain_rows_graph
        inputs = (POSITIONS, DIRECTIONS)
        return LayerOutputs(**self._run_queries(names, LAYER_OUTPUTS, sizes, inputs, images, positions, directions))

    def _layer(self, index: int) -> tuple[LayersRecord, tuple[Port, Port, Port]]:
        layers = self._bundle.manifest.layers
        assert layers is not None, "the client has checked that the bundle has layers"
        record = layers.layers[index]
        return layers, layer_ports(index, record.shape, max(1, len(record.bias_above)))

    def _run_queries(
        self,
        names: tuple[str, str],
        ports: tuple[Port, ...],
        sizes: dict[str, int],
        inputs: tuple[Port, ...],
        images: Images,
        *queries: npt.NDArray[Any],
    ) -> Arrays:
        """Run a graph on images [B, …] and queries [B, K, …], in the layout that the runtime prefers."""
        layout = self._device.runtime.layout
        path = self._bundle.path / names[layout is Layout.ROWS]
        graph = self._graph(path)

        def run(images: Images, *queries: npt.NDArray[Any]) -> Arrays:
            leading = queries[0].shape
            specs = {port.name: TensorSpec(port.shape(len(images), leading, sizes), port.dtype) for port in ports}
            feed = {IMAGE.name: images} | {port.name: one for port, one in zip(inputs, queries, strict=True)}
            outputs = graph.run(feed, specs)
            check_outputs(outputs, specs)
            return outputs

        if layout is Layout.GRID:
            return self._run_grid(path, run, images, *queries)
        return explain_grid_by_rows(run, images, *queries)

    def _run_grid(self, path: Path, run: Callable[..., Arrays], images: Any, *queries: npt.NDArray[Any]) -> Arrays:
        """Run images [B, …] with queries [B, K, …]. A batch that does not fit into memory runs in halves."""
        count, per_image = queries[0].shape[:2]
        if count * per_image <= self._most_rows.get(path, count * per_image) or count == 1:
            try:
                return run(images, *queries)
            except OutOfMemoryError:
                if count == 1:
                    raise
                self._most_rows[path] = count * per_image - 1
        middle = count // 2
        halves = [
            self._run_grid(path, run, images[part], *(one[part] for one in queries))
            for part in (slice(middle), slice(middle, None))
        ]
        return {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}

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
