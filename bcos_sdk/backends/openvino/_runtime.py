"""The runtime "openvino": faster than ONNX Runtime on the CPU. Every compiled size needs its own self-test."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from bcos_sdk._extras import installed_version, is_installed
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import OpenOptions, Runtime
from bcos_sdk.backends.openvino._graph import DEVICE, OpenvinoGraph, images_per_run, powers_of_two
from bcos_sdk.bundle import Bundle, InputShapes, Manifest
from bcos_sdk.contract import Layout

__all__ = ["OPENVINO"]


class OpenvinoRuntime(Runtime):
    """The CPU through OpenVINO."""

    name = DEVICE
    layout = Layout.ROWS  # OpenVINO stores channels last, so the reshapes of the layout GRID would be copies
    compiles_per_size = True
    # OpenVINO 2026.4 ended the process on some graphs, in the compilation and in the run of kernels for several nodes.
    crashes_are_tried = True

    @override
    def problem(self, index: int) -> str | None:
        return None if is_installed("openvino") else "OpenVINO is not installed; pip install 'bcos-sdk[openvino]'"

    @override
    def sizes(self, threads: int | None, manifest: Manifest) -> tuple[int, ...]:
        return powers_of_two(min(images_per_run(threads, manifest.input.size), manifest.max_batch))

    @override
    def version(self) -> str:
        return installed_version("openvino") or ""

    @override
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        return OpenvinoGraph(
            bundle.graph_contents(graph),
            graph.name,
            weights=bundle.weights,
            threads=options.threads,
            images_per_run=images_per_run(options.threads, bundle.manifest.input.size),
        )

    @override
    def open_onnx(
        self,
        source: Path | bytes,
        index: int,
        *,
        threads: int | None = None,
        shapes: InputShapes | None = None,
    ) -> Graph:
        return OpenvinoGraph(source, threads=threads)


OPENVINO = OpenvinoRuntime()
