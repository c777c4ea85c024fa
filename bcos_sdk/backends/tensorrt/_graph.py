"""A graph that runs as a TensorRT engine, with its buffers and its stream."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk._logs import log
from bcos_sdk.backends._forks import keep_in_forked_children
from bcos_sdk.backends._graph import Arrays, Feed, TensorSpec
from bcos_sdk.backends.tensorrt._cache import Engine
from bcos_sdk.backends.tensorrt._cuda import Buffer, Cuda, PinnedBuffer
from bcos_sdk.contract import IMAGE
from bcos_sdk.errors import BcosError, EngineError, InferenceError

__all__ = ["EngineGraph", "Profile", "choose_profile", "logger_for"]

_LEAST = 256  # bytes of scratch memory: TensorRT requires an address even for 0 bytes
Shape: TypeAlias = tuple[int, ...]
Profile: TypeAlias = dict[str, tuple[Shape, Shape]]
"""The smallest and the largest shape of each input."""


class EngineGraph:
    """One execution context on one stream, with buffers on GPU and host that are reused.

    A call copies the inputs to pinned memory, queues upload, computation and download on the stream, and waits once.
    """

    def __init__(self, engine: Engine, cuda: Cuda, name: str) -> None:
        self._trt: Any = import_module(engine.record.key.flavour)
        self._cuda = cuda
        self._name = name
        self._logger = logger_for(self._trt)
        try:
            self._load(engine.plan)
        except (TypeError, RuntimeError) as error:  # the bindings raise these for a null pointer
            raise EngineError(f"TensorRT cannot load the engine of {name}: {error}", source=name) from error
        names = [self._engine.get_tensor_name(place) for place in range(self._engine.num_io_tensors)]
        inputs = [one for one in names if self._engine.get_tensor_mode(one) == self._trt.TensorIOMode.INPUT]
        self._outputs = [one for one in names if one not in inputs]
        self._dtypes = {one: np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(one))) for one in names}
        self._profiles = [self._profile(place, inputs) for place in range(self._engine.num_optimization_profiles)]
        self._active = 0
        self._device = {one: Buffer(cuda) for one in names}
        self._host = {one: PinnedBuffer(cuda) for one in names}
        self._scratch = Buffer(cuda)
        self._stream = cuda.new_stream()
        keep_in_forked_children(self)

    def _load(self, plan: bytes) -> None:
        self._runtime: Any = self._trt.Runtime(self._logger)
        self._engine: Any = self._runtime.deserialize_cuda_engine(plan)
        # Scratch memory is allocated for the shapes of each call. Memory for the largest batch with the most targets
        # would be many times as much.
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        self._context: Any = None if self._engine is None else self._engine.create_execution_context(strategy)
        if self._context is None:
            raise EngineError(
                f"TensorRT cannot load the engine of {self._name}: {self._logger.last_error}", source=self._name
            )

    def run(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Arrays:
        """Return the outputs. A batch that is larger than the engine accepts runs in parts."""
        self._cuda.enter()
        largest = max(profile[IMAGE.name][1][0] for profile in self._profiles)
        batch = len(feed[IMAGE.name])
        parts = [
            self._run({name: array[start : start + largest] for name, array in feed.items()}, outputs)
            for start in range(0, batch, largest)
        ]
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in outputs}
        )

    def stop(self) -> None:
        """Does nothing: CUDA cannot end work that is on a stream."""

    def close(self) -> None:
        """Free the memory and the stream. Errors are ignored: after a fatal CUDA error every call fails."""
        self._context = self._engine = self._runtime = None
        with contextlib.suppress(BcosError):
            self._cuda.enter()
        for buffer in (*self._device.values(), *self._host.values(), self._scratch):
            with contextlib.suppress(BcosError):
                buffer.release()
        if self._stream:
            stream, self._stream = self._stream, 0
            with contextlib.suppress(BcosError):
                self._cuda.free_stream(stream)

    def _run(self, feed: Arrays, outputs: Mapping[str, TensorSpec]) -> Arrays:
        shapes = {name: array.shape for name, array in feed.items()}
        self._choose_profile(shapes)
        for name, array in feed.items():
            self._upload(name, array)
        results = {name: self._bind_output(name) for name in self._outputs}
        size = max(_LEAST, int(self._context.update_device_memory_size_for_shapes()))
        self._context.set_device_memory(self._scratch.reserve(size), self._scratch.size)
        if not self._context.execute_async_v3(self._stream):
            raise InferenceError(f"TensorRT cannot run {self._name} on {shapes}: {self._logger.last_error}")
        arrays = {name: self._download(name, results[name], spec) for name, spec in outputs.items()}
        self._cuda.wait(self._stream)
        # Copied, because the next call overwrites the pinned memory.
        return {name: array.copy() for name, array in arrays.items()}

    def _profile(self, place: int, inputs: list[str]) -> Profile:
        ranges: Profile = {}
        for name in inputs:
            smallest, _usual, largest = self._engine.get_tensor_profile_shape(name, place)
            ranges[name] = tuple(smallest), tuple(largest)
        return ranges

    def _choose_profile(self, shapes: Mapping[str, Shape]) -> None:
        place = choose_profile(self._profiles, shapes)
        if place is None:
            raise InferenceError(
                f"the engine of {self._name} has no profile for {dict(shapes)}", hint="Request fewer targets."
            )
        if place != self._active:
            if not self._context.set_optimization_profile_async(place, self._stream):
                raise InferenceError(f"TensorRT cannot select profile {place} of {self._name}")
            self._active = place

    def _upload(self, name: str, array: npt.NDArray[Any]) -> None:
        dtype = self._dtypes[name]
        staged = self._host[name].array(array.shape, dtype)
        np.copyto(staged, array, casting="safe")
        if not self._context.set_input_shape(name, array.shape):
            raise InferenceError(f"TensorRT does not accept {name} of shape {array.shape} for {self._name}")
        address = self._device[name].reserve(staged.nbytes)
        self._context.set_tensor_address(name, address)
        self._cuda.upload(address, self._host[name].address, staged.nbytes, self._stream)

    def _bind_output(self, name: str) -> Shape:
        """Bind a buffer to an output. TensorRT writes every output, whether it is requested or not."""
        shape = tuple(self._context.get_tensor_shape(name))
        size = int(np.prod(shape)) * self._dtypes[name].itemsize
        self._context.set_tensor_address(name, self._device[name].reserve(size))
        return shape

    def _download(self, name: str, shape: Shape, expected: TensorSpec) -> npt.NDArray[Any]:
        dtype = self._dtypes[name]
        if shape[1:] != expected.shape[1:] or dtype != expected.dtype:
            raise InferenceError(f"{name} of {self._name} is {dtype}{list(shape)}, expected {expected}")
        array = self._host[name].array(shape, dtype)
        self._cuda.download(self._host[name].address, self._device[name].address, array.nbytes, self._stream)
        return array


def choose_profile(profiles: list[Profile], shapes: Mapping[str, Shape]) -> int | None:
    """Return the profile with the smallest maximum batch among those that accept the shapes; None if none does."""

    def accepts(profile: Profile) -> bool:
        return all(
            len(shape) == len(profile[name][0])
            and all(
                low <= side <= high for low, side, high in zip(profile[name][0], shape, profile[name][1], strict=True)
            )
            for name, shape in shapes.items()
        )

    fitting = [place for place, profile in enumerate(profiles) if accepts(profile)]
    return min(fitting, key=lambda place: profiles[place][IMAGE.name][1][0], default=None)


@cache
def logger_for(trt: Any) -> Any:
    """Return the logger for a TensorRT module, with `last_error`. It writes to this package's log.

    TensorRT's own logger writes to stdout. TensorRT accepts only one logger per process, so it is created once.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.last_error = "TensorRT gave no reason"

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.last_error = message
                log.error("TensorRT: %s", message)
            elif severity == trt.ILogger.WARNING:
                log.warning("TensorRT: %s", message)

    return Logger()
