"""ONNX Runtime, on the CPU or on CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from bcos_sdk.backends._devices import Device
from bcos_sdk.backends._failures import translate_error
from bcos_sdk.backends._graphs import Arrays, Tensor
from bcos_sdk.backends.onnxruntime._binding import BoundGraph
from bcos_sdk.backends.onnxruntime._sessions import open_session, provider_options

__all__ = ["HostGraph", "SessionGraph", "open_session_graph"]


class _Runner(Protocol):
    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays: ...


class HostGraph:
    """A graph on the CPU: arrays are handed over as they are."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        names = list(outputs)
        return dict(zip(names, self._session.run(names, dict(feed)), strict=True))


class SessionGraph:
    """A graph in a session of ONNX Runtime, whose errors become ours."""

    def __init__(self, runner: _Runner) -> None:
        self._runner: _Runner | None = runner

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        assert self._runner is not None, "it was closed"
        try:
            return self._runner.run(feed, outputs)
        except Exception as error:  # ONNX Runtime's errors have no common base but this
            raise translate_error(error, len(feed["image"])) from error

    def close(self) -> None:
        self._runner = None  # the session ends with its last reference


def open_session_graph(graph: Path, device: Device, *, threads: int | None, tf32: bool) -> SessionGraph:
    session = open_session(graph, device, threads, provider_options(device, tf32=tf32))
    return SessionGraph(HostGraph(session) if device.kind == "cpu" else BoundGraph(session, device))
