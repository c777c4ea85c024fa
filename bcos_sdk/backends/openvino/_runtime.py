"""The runtime "openvino": faster than ONNX Runtime on the CPU. Every compiled size needs its own self-test."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from bcos_sdk._extras import is_installed
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import OpenOptions, Runtime
from bcos_sdk.backends.openvino._graph import DEVICE, OpenvinoGraph
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import Layout

__all__ = ["OPENVINO"]


class OpenvinoRuntime(Runtime):
    """The CPU through OpenVINO."""

    name = DEVICE
    layout = Layout.ROWS  # OpenVINO stores channels last, so the reshapes of the layout GRID would be copies
    compiles_per_size = True

    @override
    def problem(self, index: int) -> str | None:
        return None if is_installed("openvino") else "OpenVINO is not installed; pip install 'bcos-sdk[openvino]'"

    @override
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        return OpenvinoGraph(bundle.graph_contents(graph), graph.name, weights=bundle.weights, threads=options.threads)

    @override
    def open_onnx(self, source: Path | bytes, index: int, *, threads: int | None = None) -> Graph:
        return OpenvinoGraph(source, threads=threads, in_parts=False)


OPENVINO = OpenvinoRuntime()
