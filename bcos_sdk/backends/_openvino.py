"""OpenVINO: the same ONNX graphs on the CPU, compiled for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import Device, unavailable
from bcos_sdk.backends._failures import is_out_of_memory, translate_error
from bcos_sdk.backends._graphs import Arrays, Tensor
from bcos_sdk.backends._openvino_repairs import repair
from bcos_sdk.errors import BcosError, BundleError, InferenceError, OutOfMemoryError

__all__ = ["OpenvinoGraph", "import_openvino", "open_openvino_graph"]

_DEVICE = Device("openvino")
_TELEMETRY = "openvino_telemetry"
# Of its messages, the lines that say where in its source something was noticed, and not what.
_WHERE = ("Exception from ", "Check '")
_LACKS_AN_OPERATOR = ("OpConversionFailure", "does not support the following ONNX operations")  # since 2026.4, before


def open_openvino_graph(graph: Path | bytes, *, threads: int | None) -> OpenvinoGraph:
    """The graph, compiled; a `BundleError` if it is broken, a `DeviceError` if OpenVINO does not have an operator."""
    opened = OpenvinoGraph(graph, threads)
    opened.load()
    return opened


class OpenvinoGraph:
    """One compiled graph with one infer request, for batches of any size.

    Every output is computed and only those asked for are copied: without W(x) among its results the compiled graph
    takes as long.
    """

    def __init__(self, graph: Path | bytes, threads: int | None) -> None:
        self._graph = graph
        self._threads = threads
        self._request: Any = None
        self._takes: dict[str, tuple[Any, np.dtype[Any]]] = {}
        self._closed = False

    def load(self) -> None:
        """Read and compile it, or say what is wrong with it."""
        openvino = import_openvino()
        core = openvino.Core()
        try:
            model = core.read_model(self._graph)
        except Exception as error:  # OpenVINO's errors have no common base but this
            raise self._unread(error) from error
        try:
            repair(model)
            compiled = core.compile_model(model, "CPU", _options(self._threads))
        except Exception as error:
            raise self._uncompiled(error) from error
        for port in compiled.inputs:
            takes = port.partial_shape, np.dtype(port.element_type.to_dtype())
            self._takes.update(dict.fromkeys(port.names, takes))
        self._request = compiled.create_infer_request()

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        assert not self._closed, "it was closed"
        if self._request is None:
            self.load()
        self._check(feed)
        try:
            # With one thread `infer` swallows what goes wrong, and the results of the call before are still there.
            self._request.start_async(dict(feed), share_inputs=True)
            self._request.wait()
            return {name: self._fetch(name, tensor) for name, tensor in outputs.items()}
        except BcosError:
            raise
        except Exception as error:
            # Out of memory it keeps what it has and fails on smaller batches, too: it is not used again. The traceback
            # would keep it alive.
            self._request = None
            batch = len(next(iter(feed.values())))
            raise translate_error(error, batch, _said(error)) from error.with_traceback(None)

    def close(self) -> None:
        self._closed = True
        self._request = None  # the compiled graph ends with its last reference

    def _fetch(self, name: str, expected: Tensor) -> npt.NDArray[Any]:
        array = self._request.get_tensor(name).data
        if (array.shape, array.dtype.name) != (expected.shape, expected.dtype):
            raise InferenceError(f"{name} of {self._name} is {array.dtype}{list(array.shape)}, expected {expected}")
        copy: npt.NDArray[Any] = array.copy()  # the next call writes into it again
        return copy

    def _check(self, feed: Mapping[str, npt.NDArray[Any]]) -> None:
        """OpenVINO takes images of another size, or numbers of another kind, and computes something."""
        shape_of = import_openvino().PartialShape
        for name, array in feed.items():
            shape, dtype = self._takes[name]
            if dtype != array.dtype or not shape.compatible(shape_of(list(array.shape))):
                raise InferenceError(
                    f"the graph failed on a batch of {len(array)}: {name} is {array.dtype}{list(array.shape)}, "
                    f"expected {dtype}{shape}"
                )

    def _unread(self, error: Exception) -> BcosError:
        if is_out_of_memory(error):
            return self._no_room()
        if any(words in str(error) for words in _LACKS_AN_OPERATOR):
            return unavailable(_DEVICE, f"OpenVINO does not take {self._name}: {_said(error)}")
        return BundleError(
            f"OpenVINO cannot load {self._name}: {_said(error)}", source=self._name, hint="Export the model again."
        )

    def _uncompiled(self, error: Exception) -> BcosError:
        if is_out_of_memory(error):
            return self._no_room()
        return unavailable(_DEVICE, f"OpenVINO does not compile {self._name}: {_said(error)}")

    def _no_room(self) -> OutOfMemoryError:
        return OutOfMemoryError(f"{self._name} does not fit into the memory of the device")

    @property
    def _name(self) -> str:
        return self._graph.name if isinstance(self._graph, Path) else "the graph"


def _options(threads: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        # Where the CPU has bfloat16 it would be taken by default, and its 8 binary digits break every certificate.
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch: they come one at a time
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # the threads of every process would be tied to the same first cores
    }
    return options | ({"INFERENCE_NUM_THREADS": threads} if threads else {})


def _said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_WHERE)) or str(error)


def import_openvino() -> Any:
    """The package, without the message to Google Analytics that its import sends unless somebody opted out."""
    try:
        with contextlib.nullcontext() if "openvino" in sys.modules else _no_telemetry():
            return import_module("openvino")
    except (ImportError, OSError) as error:
        raise unavailable(_DEVICE, f"OpenVINO cannot be imported: {error}") from error


@contextlib.contextmanager
def _no_telemetry() -> Iterator[None]:
    """OpenVINO does without the package that sends if that cannot be imported."""
    before = sys.modules.get(_TELEMETRY)
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(_TELEMETRY, None)
        if before is not None:
            sys.modules[_TELEMETRY] = before
