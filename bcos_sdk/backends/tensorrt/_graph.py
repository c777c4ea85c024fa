"""TensorRT: an engine per graph, its buffers and its stream."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._devices import Device, unavailable
from bcos_sdk.backends._graphs import Arrays, Tensor
from bcos_sdk.backends.tensorrt import (
    Engine,
    EngineKey,
    EngineRecord,
    anything,
    flavour_problem,
    installed_flavours,
    key_for_gpu,
    obtain_engine,
    was_built_here,
)
from bcos_sdk.backends.tensorrt._cuda import Buffer, Cuda, PinnedBuffer
from bcos_sdk.backends.tensorrt._log import words_of
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import BcosError, EngineError, InferenceError

__all__ = ["EngineGraph", "choose_profile", "open_engine_graph"]

logger = logging.getLogger("bcos_sdk")

_LEAST = 256  # a context that needs no memory is given an address all the same
Shape = tuple[int, ...]
Profile = dict[str, tuple[Shape, Shape]]


def open_engine_graph(graph: Path, bundle: Bundle, device: Device, *, tf32: bool, asked: bool) -> EngineGraph:
    """The graph on the GPU, by an engine that fits it; one is built if there is none, or none that TensorRT loads.

    Unless the device was asked for by name none is built, and those that somebody else built are left alone.
    """
    keys = _keys(bundle, graph, device, tf32=tf32)
    if not keys:
        raise unavailable(device, "no TensorRT that is installed runs on it")
    accept = anything if asked else _only_own
    engine = obtain_engine(bundle, graph, keys, device.index, accept, build=asked)
    try:
        return EngineGraph(engine, Cuda(device.index), graph.name)
    except EngineError as error:
        if not asked:
            raise
        logger.warning("%s; it is built again", error.message)
        unloaded = engine.record.plan_sha256

    def another(record: EngineRecord) -> str | None:
        return "TensorRT did not load it" if record.plan_sha256 == unloaded else accept(record)

    return EngineGraph(obtain_engine(bundle, graph, keys, device.index, another), Cuda(device.index), graph.name)


def _only_own(record: EngineRecord) -> str | None:
    """A plan is code: without being asked to, only what this user built here is run."""
    return None if was_built_here(record) else "somebody else built it"


def _keys(bundle: Bundle, graph: Path, device: Device, *, tf32: bool) -> list[EngineKey]:
    """What fits the GPU, first choice first."""
    flavours = [flavour for flavour in installed_flavours() if flavour_problem(flavour, device.index) is None]
    return [key_for_gpu(bundle, graph, flavour, device.index, tf32=tf32) for flavour in flavours]


class EngineGraph:
    """One execution context on one stream; buffers on both sides are made once and used again.

    A call copies inputs to pinned memory, queues upload, computation and download on the stream, and waits once.
    """

    def __init__(self, engine: Engine, cuda: Cuda, name: str) -> None:
        self._trt: Any = import_module(engine.record.key.flavour)
        self._cuda = cuda
        self._name = name
        self._words = words_of(self._trt)
        try:
            self._load(engine.plan)
        except (TypeError, RuntimeError) as error:  # what its bindings raise for a null pointer
            raise EngineError(f"TensorRT does not load the engine of {name}: {error}", source=name) from error
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

    def _load(self, plan: bytes) -> None:
        self._runtime: Any = self._trt.Runtime(self._words)
        self._engine: Any = self._runtime.deserialize_cuda_engine(plan)
        # Memory for the shapes of each call: the largest batch with the most targets would take many times as much.
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        self._context: Any = None if self._engine is None else self._engine.create_execution_context(strategy)
        if self._context is None:
            raise EngineError(
                f"TensorRT does not load the engine of {self._name}: {self._words.complaint}", source=self._name
            )

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, Tensor]) -> Arrays:
        """The outputs; a batch that is larger than the engine takes is cut and put together again."""
        self._cuda.enter()
        largest = max(profile["image"][1][0] for profile in self._profiles)
        batch = len(feed["image"])
        parts = [
            self._run({name: array[start : start + largest] for name, array in feed.items()}, outputs)
            for start in range(0, batch, largest)
        ]
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in outputs}
        )

    def close(self) -> None:
        """Give back the memory and the stream. After an error that CUDA does not recover from nothing can be: go on."""
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

    def _run(self, feed: Arrays, outputs: Mapping[str, Tensor]) -> Arrays:
        shapes = {name: array.shape for name, array in feed.items()}
        self._choose_profile(shapes)
        for name, array in feed.items():
            self._upload(name, array)
        results = {name: self._bind_output(name) for name in self._outputs}
        size = max(_LEAST, int(self._context.update_device_memory_size_for_shapes()))
        self._context.set_device_memory(self._scratch.reserve(size), self._scratch.size)
        if not self._context.execute_async_v3(self._stream):
            raise InferenceError(f"TensorRT refuses to run {self._name} on {shapes}: {self._words.complaint}")
        arrays = {name: self._download(name, results[name], tensor) for name, tensor in outputs.items()}
        self._cuda.wait(self._stream)
        # The pinned memory is written again by the next call.
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
            raise InferenceError(f"the engine of {self._name} takes no {dict(shapes)}", hint="Ask for fewer targets.")
        if place != self._active:
            if not self._context.set_optimization_profile_async(place, self._stream):
                raise InferenceError(f"TensorRT refuses profile {place} of {self._name}")
            self._active = place

    def _upload(self, name: str, array: npt.NDArray[Any]) -> None:
        dtype = self._dtypes[name]
        staged = self._host[name].array(array.shape, dtype)
        np.copyto(staged, array, casting="safe")
        if not self._context.set_input_shape(name, array.shape):
            raise InferenceError(f"TensorRT refuses {name} of shape {array.shape} for {self._name}")
        address = self._device[name].reserve(staged.nbytes)
        self._context.set_tensor_address(name, address)
        self._cuda.upload(address, self._host[name].address, staged.nbytes, self._stream)

    def _bind_output(self, name: str) -> Shape:
        """TensorRT writes every output, wanted or not."""
        shape = tuple(self._context.get_tensor_shape(name))
        size = int(np.prod(shape)) * self._dtypes[name].itemsize
        self._context.set_tensor_address(name, self._device[name].reserve(size))
        return shape

    def _download(self, name: str, shape: Shape, expected: Tensor) -> npt.NDArray[Any]:
        dtype = self._dtypes[name]
        if shape[1:] != expected.shape[1:] or dtype != expected.dtype:
            raise InferenceError(f"{name} of {self._name} is {dtype}{list(shape)}, expected {expected}")
        array = self._host[name].array(shape, dtype)
        self._cuda.download(self._host[name].address, self._device[name].address, array.nbytes, self._stream)
        return array


def choose_profile(profiles: list[Profile], shapes: Mapping[str, Shape]) -> int | None:
    """Of the profiles that take these shapes the one whose largest batch is smallest; None if none does."""

    def takes(profile: Profile) -> bool:
        return all(
            len(shape) == len(profile[name][0])
            and all(
                low <= side <= high for low, side, high in zip(profile[name][0], shape, profile[name][1], strict=True)
            )
            for name, shape in shapes.items()
        )

    fitting = [place for place, profile in enumerate(profiles) if takes(profile)]
    return min(fitting, key=lambda place: profiles[place]["image"][1][0], default=None)
