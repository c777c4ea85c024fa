"""OpenVINO: the same ONNX graphs on the CPU, compiled for it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import Device, unavailable
from bcos_sdk.backends._failures import is_out_of_memory, translate_error
from bcos_sdk.backends._graphs import Arrays, Tensor
from bcos_sdk.backends.openvino._repairs import repair
from bcos_sdk.backends.openvino._tuning import join_norms
from bcos_sdk.errors import BcosError, BundleError, InferenceError, OutOfMemoryError

__all__ = ["OpenvinoGraph", "import_openvino", "open_openvino_graph"]

_Form: TypeAlias = tuple[tuple[str, int], ...]
"""The length of each input's first axis that a graph is compiled for."""
_ANY = -1

_DEVICE = Device("openvino")
# Two threads are as fast with one image as with eight. That more need more images, each a share, is a guess.
_THREADS_PER_IMAGE = 2
_MOST_AT_ONCE = 8
_TELEMETRY = "openvino_telemetry"
# Of its messages, the lines that say where in its source something was noticed, and not what.
_WHERE = ("Exception from ", "Check '")
_LACKS_AN_OPERATOR = ("OpConversionFailure", "does not support the following ONNX operations")  # since 2026.4, before


def open_openvino_graph(graph: Path | bytes, *, threads: int | None, in_parts: bool = True) -> OpenvinoGraph:
    """The compiled graph. A broken file is a `BundleError`, a missing operator a `DeviceUnavailableError`."""
    opened = OpenvinoGraph(graph, threads, in_parts=in_parts)
    opened.load()
    return opened


class OpenvinoGraph:
    """One graph that is compiled for some images at a time, and runs larger batches in parts.

    Where all sizes are known OpenVINO joins operators into kernels that it does not make for a batch of any size, and
    parts of a batch take less memory than the whole. Every output is computed and only those asked
    for are copied: without W(x) among its results the compiled graph takes as long.
    """

    def __init__(self, graph: Path | bytes, threads: int | None, *, in_parts: bool = True) -> None:
        self._graph = graph
        self._threads = threads
        self._at_once = images_at_once(threads or _cores()) if in_parts else None
        self._model: Any = None
        self._takes: dict[str, tuple[Any, np.dtype[Any]]] = {}
        self._requests: dict[_Form, Any] = {}
        self._closed = False

    def load(self) -> None:
        """Read it, once and for all, and compile it for one image, or say what is wrong with it."""
        try:
            self._model = import_openvino().Core().read_model(self._graph)
        except Exception as error:  # OpenVINO's errors have no common base but this
            raise self._unread(error) from error
        for port in self._model.inputs:
            takes = port.partial_shape, np.dtype(port.element_type.to_dtype())
            self._takes.update(dict.fromkeys(port.names, takes))
        self._request_for(tuple((port.any_name, 1) for port in self._model.inputs))

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        assert not self._closed, "it was closed"
        self._check(feed)
        try:
            results: Arrays = {name: np.empty(tensor.shape, tensor.dtype) for name, tensor in outputs.items()}
            for part, form in self._parts(feed):
                self._run_part({name: array[part] for name, array in feed.items()}, form, results, part)
        except BcosError:
            raise
        except Exception as error:
            # Out of memory it keeps what it has and fails on smaller batches, too: it is not used again. The traceback
            # would keep it alive.
            self._requests.clear()
            most = max(len(array) for array in feed.values())
            raise translate_error(error, most, _said(error)) from error.with_traceback(None)
        return results

    def close(self) -> None:
        self._closed = True
        self._model = None
        self._requests.clear()  # the compiled graphs end with their last reference

    def _parts(self, feed: Mapping[str, npt.NDArray[Any]]) -> Iterator[tuple[slice, _Form]]:
        """Which images are run together, and what the graph is compiled for then."""
        counts = {len(array) for array in feed.values()}
        if len(counts) > 1:  # one image and several targets, whose number may be another one next time
            yield slice(None), tuple((name, 1 if len(array) == 1 else _ANY) for name, array in feed.items())
            return
        (count,) = counts
        start = 0
        while start < count:
            size = _power_of_two(min(count - start, self._at_once)) if self._at_once else count
            yield slice(start, start + size), tuple((name, size) for name in feed)
            start += size

    def _run_part(self, feed: Arrays, form: _Form, results: Arrays, part: slice) -> None:
        request = self._request_for(form)
        # With one thread `infer` swallows what goes wrong, and the results of the call before are still there.
        request.start_async(feed, share_inputs=True)
        request.wait()
        for name, result in results.items():
            array = request.get_tensor(name).data
            if (array.shape, array.dtype) != (result[part].shape, result.dtype):
                raise InferenceError(
                    f"{name} of {self._name} is {array.dtype}{list(array.shape)}, "
                    f"expected {result.dtype}{list(result[part].shape)}"
                )
            result[part] = array

    def _request_for(self, form: _Form) -> Any:
        if form not in self._requests:
            self._requests[form] = self._compile(form)
        return self._requests[form]

    def _compile(self, form: _Form) -> Any:
        try:
            model = self._model.clone()
            repair(model)
            join_norms(model)
            model.reshape({name: _with_first_axis(model.input(name).partial_shape, size) for name, size in form})
            compiled = import_openvino().Core().compile_model(model, "CPU", _options(self._threads))
            return compiled.create_infer_request()
        except BcosError:
            raise
        except Exception as error:
            raise self._uncompiled(error) from error

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


def images_at_once(threads: int) -> int:
    """A power of two: each is compiled for by itself, and there are few of them."""
    return _power_of_two(min(max(1, threads // _THREADS_PER_IMAGE), _MOST_AT_ONCE))


def _power_of_two(number: int) -> int:
    """The largest that is not larger."""
    return 1 << (number.bit_length() - 1)


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_first_axis(shape: Any, size: int) -> Any:
    _first, *rest = shape
    return type(shape)([size, *rest])


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
