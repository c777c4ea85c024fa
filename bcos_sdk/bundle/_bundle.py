"""A bundle: a folder of graphs, weights, golden record and manifest, all verified when it was opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from bcos_sdk.bundle._golden import Golden, GoldenLayer
from bcos_sdk.bundle._manifest import Manifest
from bcos_sdk.contract import EXPLAIN_INPUTS, LAYER_INPUTS, PREDICT_INPUTS, Layout, Port

__all__ = ["Bundle", "InputShapes"]

InputShapes: TypeAlias = dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were verified when it was opened."""

    path: Path
    manifest: Manifest
    contents: Mapping[str, memoryview] = field(default_factory=dict, repr=False, compare=False)
    """The verified contents of every file of the manifest. A runtime gets these bytes, not the path of a file."""
    sha256: str = ""
    """The SHA-256 of manifest.json. It pins the whole bundle, because the manifest has the hash of every file."""
    signature: memoryview | None = field(default=None, repr=False, compare=False)
    """The contents of the signature; None if the bundle is not signed. That there is one proves nothing."""

    def at_size(self, size: tuple[int, int]) -> Bundle:
        """The bundle for another size of its input; an `InputError` if it was not exported for this size."""
        return replace(self, manifest=self.manifest.at_size(size))

    @property
    def weights(self) -> memoryview:
        """The external data of the graphs."""
        return self.contents[self.manifest.weights]

    def graph_contents(self, graph: Path) -> bytes:
        """The bytes of one of the graphs."""
        return bytes(self.contents[graph.relative_to(self.path).as_posix()])

    @property
    def predict_graph(self) -> Path:
        return self.path / self.manifest.predict_graph

    @property
    def explain_graph(self) -> Path:
        """The explain graph in the layout GRID. Every bundle has it."""
        return self.path / self.manifest.explain_graph

    @property
    def explain_rows_graph(self) -> Path | None:
        """The explain graph in the layout ROWS; None if the bundle does not have it."""
        name = self.manifest.explain_rows_graph
        return None if name is None else self.path / name

    def explain_graph_for(self, layout: Layout) -> tuple[Path, Layout]:
        """The explain graph in this layout and its layout. Bundles without a graph in ROWS have GRID instead."""
        rows = self.explain_rows_graph
        return (self.explain_graph, Layout.GRID) if layout is Layout.GRID or rows is None else (rows, Layout.ROWS)

    @property
    def graphs(self) -> tuple[Path, ...]:
        """All ONNX graphs of the bundle."""
        return tuple(self.path / name for name in self.manifest.graphs)

    @property
    def engine_graphs(self) -> tuple[Path, ...]:
        """The graphs that run as TensorRT engines: all in the layout GRID."""
        layers = self.manifest.layers
        names = [self.manifest.predict_graph, self.manifest.explain_graph]
        if layers is not None:
            names += [layers.features_graph, layers.relay_graph, *(one.explain_graph for one in layers.layers)]
        return tuple(self.path / name for name in names)

    @property
    def engines(self) -> Path:
        """The folder of TensorRT engines. Neither manifest nor signature covers them; each has a record beside it."""
        return self.path / "engines"

    def golden(self) -> Golden:
        """Read the golden record, which the self-test compares every device with."""
        return Golden.read(self.contents[self.manifest.golden], self.manifest.sizes)

    def golden_layers(self) -> tuple[GoldenLayer, ...]:
        """Read the golden record of the layers."""
        layers = self.manifest.layers
        if layers is None:
            return ()
        shapes = [(one.shape, one.channels) for one in layers.layers]
        return GoldenLayer.read(self.contents[layers.golden], self.manifest.sizes, shapes)

    def input_shapes(self, graph: Path) -> InputShapes:
        """Smallest, most frequent and largest shape of each input of a graph: the profile of its engine."""
        largest, sizes = self.manifest.max_batch, self.manifest.sizes
        batches = ((1, (1, 1)), (largest, (largest, 1)), (largest, (largest, largest)))
        ports: tuple[Port, ...] = PREDICT_INPUTS
        layers = self.manifest.layers
        if graph == self.explain_graph or (layers is not None and graph.name == layers.relay_graph):
            ports = EXPLAIN_INPUTS
        for layer in self.manifest.layer_records:
            if graph.name == layer.explain_graph:
                ports, sizes = LAYER_INPUTS, sizes | {"channels": layer.channels}
        smallest, usual, most = ({port.name: port.shape(*batch, sizes) for port in ports} for batch in batches)
        return {name: (smallest[name], usual[name], most[name]) for name in smallest}
