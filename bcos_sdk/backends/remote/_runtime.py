"""The runtime of a client whose model is behind a server. Its device is the address."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import OpenOptions, Runtime
from bcos_sdk.backends.remote._graph import RemoteGraph
from bcos_sdk.backends.remote._served import ServedModel
from bcos_sdk.bundle import Bundle, InputShapes
from bcos_sdk.errors import DeviceUnavailableError

__all__ = ["RemoteRuntime"]


class RemoteRuntime(Runtime):
    """Sends images to a server. It is in no list of runtimes: an address selects it."""

    def __init__(self, served: ServedModel) -> None:
        self._served = served

    @override
    def problem(self, index: int) -> str | None:
        return None

    @override
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        explains = graph == bundle.explain_graph
        return RemoteGraph(self._served, self._served.explain_model if explains else self._served.address.model)

    @override
    def open_onnx(
        self, source: Path | bytes, index: int, *, threads: int | None = None, shapes: InputShapes | None = None
    ) -> Graph:
        raise DeviceUnavailableError("a server runs only the graphs of its own model")

    @override
    def device_name(self, index: int) -> str:
        return str(self._served.address)
