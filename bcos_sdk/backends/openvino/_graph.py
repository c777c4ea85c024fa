"""A graph that OpenVINO compiles for the CPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bcos_sdk._processes import return_freed_memory
from bcos_sdk._telemetry import import_openvino
from bcos_sdk.backends._forks import keep_in_forked_children
from bcos_sdk.backends._graph import Arrays, Feed, Graph, TensorSpec, batch_size, inference_error, is_out_of_memory
from bcos_sdk.backends._runtime import unavailable
from bcos_sdk.backends.openvino._rewrite import rewrite, share_weights
from bcos_sdk.bundle import external_tensors, move_external_data, release_pages
from bcos_sdk.errors import BcosError, BundleError, ClientClosedError, InferenceError, OutOfMemoryError

__all__ = ["DEVICE", "OpenvinoGraph", "images_per_run", "powers_of_two"]

DEVICE = "openvino"

_Sizes: TypeAlias = tuple[tuple[str, int], ...]
"""For each input, the length of its first axis that a graph is compiled for."""
_ANY = -1
# With this location the offset of a tensor is an address in memory. The gate refuses files that contain it.
_MEMORY_LOCATION = "*/_ORT_MEM_ADDR_/*"

# Measured with two threads. Runs of two images of 224×224 pixels take 2 to 7 % less time per image than runs of one,
# larger runs hardly less. With 32×32 pixels, runs of eight take 30 % less. For more threads it is an assumption.
_PIXELS_PER_THREAD = 224 * 224
_MOST_IMAGES_PER_RUN = 8
# Lines of an error message that only name a place in the source code of OpenVINO.
_SOURCE_LINES = ("Exception from ", "Check '")
# Texts for an operator that OpenVINO does not have: since 2026.4, and before.
_UNKNOWN_OPERATOR = ("OpConversionFailure", "does not support the following ONNX operations")


class OpenvinoGraph(Graph):
    """A graph that runs batches in parts of `images_per_run`, a power of two; without it, each batch as a whole.

    For a fixed batch size OpenVINO fuses operators that it does not fuse for a dynamic one, and parts need less memory
    than the whole batch. Every output is computed; only the requested ones are copied. Leaving out the output W(x)
    would not save time.

    A damaged file is a `BundleError`. An operator that OpenVINO does not have is a `DeviceUnavailableError`.
    """

    def __init__(
        self,
        graph: Path | bytes,
        name: str | None = None,
        *,
        weights: memoryview | None = None,
        threads: int | None = None,
        images_per_run: int | None = None,
    ) -> None:
        self._name = name or (graph.name if isinstance(graph, Path) else "the graph")
        self._weights = weights  # constants of the model use this memory
        self._threads = threads
        self._images_per_run = images_per_run
        self._requests: dict[_Sizes, Any] = {}
        self._runs: Counter[_Sizes] = Counter()
        self._running: Any = None
        self._stopped = False
        self._closed = False
        keep_in_forked_children(self)
        if weights is None:
            self._model = self._read(graph)
        else:
            contents = graph.read_bytes() if isinstance(graph, Path) else graph
            self._model = self._read(_with_weights_in_memory(contents, weights))
            share_weights(self._model, external_tensors(contents, weights))
            release_pages(weights)
            return_freed_memory()
        self._inputs: dict[str, tuple[Any, np.dtype[Any]]] = {}
        for port in self._model.inputs:
            spec = port.partial_shape, np.dtype(port.element_type.to_dtype())
            self._inputs.update(dict.fromkeys(port.names, spec))

    def run(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Arrays:
        assert not self._closed, "the graph is closed"
        self._check(feed)
        try:
            results: Arrays = {name: np.empty(spec.shape, spec.dtype) for name, spec in outputs.items()}
            parts = list(self._parts(feed))
            self._make_room({sizes for _part, sizes in parts})
            for part, sizes in parts:
                self._run_part({name: array[part] for name, array in feed.items()}, sizes, results, part)
        except BcosError:
            raise
        except Exception as error:
            # A request that ran out of memory keeps what it has allocated and fails on smaller batches as well, so
            # no request is used again. The traceback would keep them alive.
            self._requests.clear()
            raise inference_error(error, batch_size(feed), _message(error)) from error.with_traceback(None)
        return results

    def stop(self) -> None:
        self._stopped = True
        request = self._running
        if request is not None:
            request.cancel()  # OpenVINO checks it before each operator

    def close(self) -> None:
        self._closed = True
        self._model = None
        self._requests.clear()  # the last references: OpenVINO frees the compiled graphs
        self._weights = None

    def _read(self, graph: Path | bytes) -> Any:
        """Read the file once. Files that replace it or the weights later do not change what runs."""
        try:
            return _openvino().Core().read_model(graph)
        except Exception as error:  # the errors of OpenVINO have no other common base
            if is_out_of_memory(error):
                raise self._no_memory() from error
            if any(text in str(error) for text in _UNKNOWN_OPERATOR):
                raise unavailable(DEVICE, f"OpenVINO does not support {self._name}: {_message(error)}") from error
            raise BundleError(
                f"OpenVINO cannot load {self._name}: {_message(error)}",
                source=self._name,
                hint="Export the model again.",
            ) from error

    def _parts(self, feed: Feed) -> Iterator[tuple[slice, _Sizes]]:
        """Yield the images of each run, and the sizes that the graph is compiled for."""
        counts = {len(array) for array in feed.values()}
        if len(counts) > 1:  # one image with several targets: compiled once for any number of targets
            yield slice(None), tuple((name, 1 if len(array) == 1 else _ANY) for name, array in feed.items())
            return
        (count,) = counts
        start = 0
        while start < count:
            size = _power_of_two(min(count - start, self._images_per_run)) if self._images_per_run else count
            yield slice(start, start + size), tuple((name, size) for name in feed)
            start += size

    def _run_part(self, feed: Arrays, sizes: _Sizes, results: Arrays, part: slice) -> None:
        request = self._request_for(sizes)
        # With one thread, `infer` hides errors and leaves the results of the previous call in place.
        self._running = request
        try:
            if self._stopped:  # read after `_running` is set, so that `stop` is not missed
                raise ClientClosedError("this graph is stopped")
            request.start_async(feed, share_inputs=True)
            request.wait()  # also if it is cancelled: it returns when nothing runs any more
        finally:
            self._running = None
        for name, result in results.items():
            array = request.get_tensor(name).data
            if (array.shape, array.dtype) != (result[part].shape, result.dtype):
                raise InferenceError(
                    f"{name} of {self._name} is {array.dtype}{list(array.shape)}, "
                    f"expected {result.dtype}{list(result[part].shape)}"
                )
            result[part] = array

    def _make_room(self, needed: set[_Sizes]) -> None:
        """Before another size is compiled, free those that have run only once: in the self-test when it was opened."""
        if not needed <= self._requests.keys():
            for once in [known for known in self._requests if known not in needed and self._runs[known] <= 1]:
                del self._requests[once]

    def _request_for(self, sizes: _Sizes) -> Any:
        if sizes not in self._requests:
            self._requests[sizes] = self._compile(sizes)
        self._runs[sizes] += 1
        return self._requests[sizes]

    def _compile(self, sizes: _Sizes) -> Any:
        try:
            model = self._model.clone()
            rewrite(model)
            model.reshape({name: _with_first_axis(model.input(name).partial_shape, size) for name, size in sizes})
            compiled = _compile_for_cpu(model, _options(self._threads))
            if self._weights is not None:
                release_pages(self._weights)  # the compiled graph has its own copy
            return compiled.create_infer_request()
        except BcosError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise self._no_memory() from error
            raise unavailable(DEVICE, f"OpenVINO cannot compile {self._name}: {_message(error)}") from error

    def _check(self, feed: Feed) -> None:
        """Refuse inputs of another shape or dtype. OpenVINO would accept them and compute wrong results."""
        partial_shape = _openvino().PartialShape
        for name, array in feed.items():
            shape, dtype = self._inputs[name]
            if dtype != array.dtype or not shape.compatible(partial_shape(list(array.shape))):
                raise InferenceError(
                    f"the graph failed on a batch of {len(array)}: {name} is {array.dtype}{list(array.shape)}, "
                    f"expected {dtype}{shape}"
                )

    def _no_memory(self) -> OutOfMemoryError:
        return OutOfMemoryError(f"{self._name} does not fit into the memory of the device")


def images_per_run(threads: int | None, size: tuple[int, int]) -> int:
    """The number of images in one run; without a number of threads, for all cores.

    It is a power of two, so that few sizes have to be compiled.
    """
    pixels = (threads or _cores()) * _PIXELS_PER_THREAD
    return _power_of_two(min(max(1, pixels // prod(size)), _MOST_IMAGES_PER_RUN))


def powers_of_two(largest: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `largest`: the sizes of parts."""
    return tuple(1 << power for power in range(largest.bit_length()))


def _power_of_two(number: int) -> int:
    """The largest power of two that is ≤ `number`."""
    return 1 << (number.bit_length() - 1)


def _cores() -> int:
    """The cores that this process may use; all cores if the system does not report it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_first_axis(shape: Any, size: int) -> Any:
    _first, *rest = shape
    return type(shape)([size, *rest])


def _options(threads: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        # The default is bfloat16 on CPUs that have it. Its 8 significant bits break every certificate.
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",  # all cores work on one batch, because batches run one at a time
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # pinning would bind the threads of every process to the same first cores
    }
    return options | ({"INFERENCE_NUM_THREADS": threads} if threads else {})


def _compile_for_cpu(model: Any, options: dict[str, Any]) -> Any:
    core = _openvino().Core()
    try:
        return core.compile_model(model, "CPU", options)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        # OpenVINO joins some operators into one kernel that it cannot compile, for example Mish behind two products.
        return core.compile_model(model, "CPU", options | {"SNIPPETS_MODE": "DISABLE"})


def _message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_SOURCE_LINES)) or str(error)


def _with_weights_in_memory(contents: bytes, weights: memoryview) -> bytes:
    """The graph with the addresses of its weights in the memory of this process, so that OpenVINO opens no file."""
    address = np.frombuffer(weights, np.uint8).ctypes.data
    return move_external_data(contents, location=_MEMORY_LOCATION, start=address)


def _openvino() -> Any:
    try:
        return import_openvino()
    except (ImportError, OSError) as error:
        raise unavailable(DEVICE, f"OpenVINO cannot be imported: {error}") from error
