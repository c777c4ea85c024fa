"""The interface between the client and the runtimes, and its implementation by the graphs of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

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
)
from bcos_sdk.backends._halves import Halves
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

Array: TypeAlias = npt.NDArray[Any]


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


@dataclass(frozen=True)
class _Call:
    """What is asked of a graph: its outputs, the sizes of their axes, and the inputs besides the images."""

    path: Path
    ports: Sequence[Port]
    sizes: dict[str, int]
    inputs: tuple[Port, ...] = ()


class GraphBackend:
    """Runs the graphs of a bundle. Each graph is loaded on first use, so a client that only predicts loads one."""

    def __init__(self, bundle: Bundle, device: Device, options: OpenOptions | None = None) -> None:
        self._bundle = bundle
        self._device = device
        self._options = options or OpenOptions()
        self._graphs: dict[Path, Graph] = {}
        self._halves = Halves(self._make_room)
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
        finish = self._start(_Call(self._bundle.predict_graph, PREDICT_OUTPUTS, self._sizes), images)

        def logits() -> Floats:
            found: Floats = finish()[LOGITS.name]
            return found

        return logits

    def explain(self, images: Images | ImageList, targets: Integers, *, weights: bool) -> ExplainOutputs:
        return self.start_explain(images, targets, weights=weights)()

    def start_explain(
        self, images: Images | ImageList, targets: Integers, *, weights: bool
    ) -> Callable[[], ExplainOutputs]:
        path, _ = self._bundle.explain_graph_for(self._device.runtime.layout)
        call = _Call(path, ExplainOutputs.ports(weights=weights), self._sizes, (TARGETS,))
        finish = self._start_queries(call, images, targets)
        return lambda: ExplainOutputs(**finish())

    def features(self, images: Images, layers: tuple[int, ...]) -> FeatureOutputs:
        found = [self._layer(layer) for layer in layers]
        ports = [activations for _, (activations, _, _) in found]
        path = self._bundle.path / found[0][0].features_graph
        outputs = self._start(_Call(path, (LOGITS, *ports), self._sizes), images)()
        return FeatureOutputs(outputs[LOGITS.name], tuple(outputs[port.name] for port in ports))

    def relay(self, images: Images, targets: Integers, layer: int) -> RelayOutputs:
        layers, (activations, features, bias) = self._layer(layer)
        ports = (LOGITS, CLASSES, activations, features, bias)
        path = self._by_layout(layers.relay_graph, layers.relay_rows_graph)
        got = self._start_queries(_Call(path, ports, self._sizes, (TARGETS,)), images, targets)()
        parts = (got[port.name] for port in (LOGITS, activations, CLASSES, features, bias))
        return RelayOutputs(*parts)

    def explain_layer(self, images: Images, layer: int, positions: Integers, directions: Floats) -> LayerOutputs:
        record = self._bundle.manifest.layer_records[layer]
        sizes = self._sizes | {"bias_terms": len(record.bias_terms), "channels": record.channels}
        path = self._by_layout(record.explain_graph, record.explain_rows_graph)
        call = _Call(path, LAYER_OUTPUTS, sizes, (POSITIONS, DIRECTIONS))
        return LayerOutputs(**self._start_queries(call, images, positions, directions)())

    @property
    def _sizes(self) -> dict[str, int]:
        return self._bundle.manifest.sizes

    def _layer(self, index: int) -> tuple[LayersRecord, tuple[Port, Port, Port]]:
        layers = self._bundle.manifest.layers
        assert layers is not None, "the client has checked that the bundle has layers"
        record = layers.layers[index]
        return layers, layer_ports(index, record.shape, max(1, len(record.bias_above)))

    def _by_layout(self, grid: str, rows: str) -> Path:
        return self._bundle.path / (grid if self._device.runtime.layout is Layout.GRID else rows)

    def _start_queries(self, call: _Call, images: Images | ImageList, *queries: Array) -> Callable[[], Arrays]:
        """Start a graph on images [B, …] and queries [B, K, …], in the layout that the runtime prefers."""
        if self._device.runtime.layout is Layout.GRID:
            return self._start(call, images, *queries)
        assert not isinstance(images, ImageList), "only runtimes with the layout GRID overlap runs"
        outputs = explain_grid_by_rows(lambda *some: self._start_whole(call, *some)(), images, *queries)
        return lambda: outputs

    def _start(self, call: _Call, images: Images | ImageList, *queries: Array) -> Callable[[], Arrays]:
        """Start a graph. A batch that does not fit into memory runs in halves."""

        def start(images: Images | ImageList, *queries: Array) -> Callable[[], Arrays]:
            return self._start_whole(call, images, *queries)

        if self._device.runtime.compiles_per_size:  # halves would be graphs that were not tested
            return start(images, *queries)
        self._graph(call.path)  # halves of a batch cannot help if the graph itself does not fit
        return self._halves.start(call.path, start, images, *queries)

    def _start_whole(self, call: _Call, images: Images | ImageList, *queries: Array) -> Callable[[], Arrays]:
        leading = queries[0].shape if queries else ()
        specs = {port.name: TensorSpec(port.shape(len(images), leading, call.sizes), port.dtype) for port in call.ports}
        feed = {IMAGE.name: images} | {port.name: one for port, one in zip(call.inputs, queries, strict=True)}
        finish = self._graph(call.path).start(feed, specs)

        def checked() -> Arrays:
            outputs = finish()
            check_outputs(outputs, specs)
            return outputs

        return checked

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
            try:
                self._graphs[path] = self._open(path)
            except OutOfMemoryError:
                if not self._make_room():
                    raise
                self._graphs[path] = self._open(path)
        if self._stopped:  # also while the graph was loaded
            raise ClientClosedError("this backend is closed")
        return self._graphs[path]

    def _open(self, path: Path) -> Graph:
        return self._device.runtime.open_graph(path, self._bundle, self._device.index, self._options)

    def _make_room(self) -> bool:
        """Free what the graphs keep for later runs. Return whether there was anything."""
        return sum(graph.make_room() for graph in self._graphs.values()) > 0  # each of them, not up to the first
