"""A graph that runs as a TensorRT engine, with its buffers and its stream."""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends._forks import keep_in_forked_children
from bcos_sdk.backends._graph import Arrays, Feed, Graph, TensorSpec, batch_size
from bcos_sdk.backends._pixel_input import ENCODED, PIXELS, blank_image
from bcos_sdk.backends.tensorrt._cache import Engine
from bcos_sdk.backends.tensorrt._cuda import Buffer, Cuda, PinnedBuffer
from bcos_sdk.backends.tensorrt._execution import Execution, GraphedExecution, Profile, Shape, scratch_size
from bcos_sdk.backends.tensorrt._messages import native_logger, new_recorder
from bcos_sdk.backends.tensorrt._run import Run
from bcos_sdk.backends.tensorrt._runtime_cache import RuntimeCache
from bcos_sdk.backends.tensorrt._slot import Slot, Streams
from bcos_sdk.contract import IMAGE
from bcos_sdk.errors import BcosError, EngineError, InferenceError, OutOfMemoryError

__all__ = ["EngineGraph"]

_SLOTS = 2
_MOST_GRAPHED = 8
"""Contexts with CUDA graphs that are kept: one for each slot and set of shapes."""


class EngineGraph(Graph):
    """One execution context with two slots of buffers, which are reused. With CUDA graphs there are several contexts.

    A run copies its inputs to pinned memory and queues upload, computation and download on three streams. The next run
    is queued in the other slot while the GPU works. Events order the steps of a run. Runs compute one after another.
    """

    def __init__(self, engine: Engine, cuda: Cuda, name: str, *, cuda_graphs: bool = False) -> None:
        self._trt: Any = import_module(engine.record.key.flavour)
        self._cuda = cuda
        self._name = name
        self._errors = new_recorder(self._trt)
        self._freed = False
        self._cuda_graphs = cuda_graphs
        with cuda.selected():
            self._open(engine)
        keep_in_forked_children(self)

    def _open(self, engine: Engine) -> None:
        try:
            self._load(engine)
        except (MemoryError, TypeError, RuntimeError) as error:  # the bindings raise the last two for a null pointer
            raise self._load_error(error) from error
        cuda = self._cuda
        names = [self._engine.get_tensor_name(place) for place in range(self._engine.num_io_tensors)]
        on_host = [one for one in names if self._engine.get_tensor_location(one) != self._trt.TensorLocation.DEVICE]
        if on_host:  # a buffer on the GPU would be read by the CPU, which crashes the process
            raise EngineError(
                f"the engine of {self._name} reads or writes {', '.join(on_host)} on the host, expected on the GPU",
                source=self._name,
            )
        inputs = [one for one in names if self._engine.get_tensor_mode(one) == self._trt.TensorIOMode.INPUT]
        self._outputs = [one for one in names if one not in inputs]
        self._dtypes = {one: np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(one))) for one in names}
        self._profiles = [self._profile(place, inputs) for place in range(self._engine.num_optimization_profiles)]
        both = {PIXELS, ENCODED} <= set(inputs)
        self._blanks = {one: self._blank(one) for one in (PIXELS, ENCODED)} if both else {}
        self._blank_buffers = {one: Buffer(cuda) for one in self._blanks}
        self._scratch = Buffer(cuda)
        self._streams = Streams(cuda)
        self._slots = [Slot(cuda, self._streams, names) for _ in range(_SLOTS)]
        self._runs: list[Run] = []
        self._execution = Execution(self._context, *self._how_to_execute())
        self._graphed: OrderedDict[object, GraphedExecution] = OrderedDict()
        self._errors.clear()  # what TensorRT reported while it loaded the engine did not stop it

    def _load(self, engine: Engine) -> None:
        self._runtime: Any = self._trt.Runtime(native_logger(self._trt))
        self._runtime.error_recorder = self._errors
        self._engine: Any = self._runtime.deserialize_cuda_engine(engine.plan)
        self._context: Any = None
        self._kernels: RuntimeCache | None = None
        if self._engine is not None:
            # Scratch memory is allocated for the shapes of each call. Memory for the largest batch with the most
            # targets would be many times as much.
            self._how: Any = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
            if engine.record.key.flavour == "tensorrt_rtx":
                self._kernels = RuntimeCache(
                    self._trt, self._engine, engine.record, self._cuda.index, cuda_graphs=self._cuda_graphs
                )
                self._how = self._kernels.config
            self._context = self._engine.create_execution_context(self._how)
        if self._context is None:
            raise self._load_error()

    def _load_error(self, error: Exception | None = None) -> BcosError:
        """Out of memory is no reason to build the engine again: the new one would not fit either."""
        reason = self._errors.last_error if error is None or self._errors.codes else str(error)
        message = f"TensorRT cannot load the engine of {self._name}: {reason}"
        if isinstance(error, MemoryError) or self._errors.out_of_memory():
            return OutOfMemoryError(
                message,
                source=self._name,
                hint="Free memory of the GPU: other processes, or other clients of this process, use it.",
            )
        return EngineError(message, source=self._name)

    def run(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Arrays:
        """Return the outputs. A batch that is larger than the engine accepts runs in parts, two of them at a time."""
        largest, batch = self._largest_batch(), batch_size(feed)
        with self._cuda.selected():
            runs = [
                self._start({name: array[start : start + largest] for name, array in feed.items()}, outputs)
                for start in range(0, batch, largest)
            ]
            parts = [run.finish() for run in runs]
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in outputs}
        )

    def start(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Callable[[], Arrays]:
        """Queue a run. A third run waits for the first one."""
        if batch_size(feed) > self._largest_batch():
            return super().start(feed, outputs)
        with self._cuda.selected():
            run = self._start(feed, outputs)

        def finish() -> Arrays:
            with self._cuda.selected():
                return run.finish()

        return finish

    def _largest_batch(self) -> int:
        return max(shapes[1][0] for profile in self._profiles for shapes in profile.values())

    def _start(self, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Run:
        self._runs = [run for run in self._runs if not run.finished]
        if len(self._runs) == _SLOTS:
            self._runs.pop(0).finish()  # its outputs leave the slot
        used = [run.slot for run in self._runs]
        slot = next(slot for slot in self._slots if slot not in used)
        kept = self._keeps_memory()
        try:
            run = self._queue(slot, feed, outputs)
        except OutOfMemoryError:
            if not (self.make_room() and kept):
                raise
            return self._start(feed, outputs)  # nothing is kept now, so this is the last attempt
        except BaseException:
            with contextlib.suppress(BcosError):  # nothing may be in flight when the slot is used again
                self._streams.wait()
            raise
        self._runs.append(run)
        return run

    def make_room(self) -> bool:
        """Finish the runs that were started, and free all memory that is kept for later ones, with captured graphs."""
        kept = self._keeps_memory()
        try:
            with self._cuda.selected():
                for run in self._runs:
                    run.finish()  # its outputs leave the slot
                self._streams.wait()
                self._runs.clear()
                for execution in self._graphed.values():
                    execution.free()
                self._graphed.clear()
                for buffer in self._buffers():
                    buffer.release()
        except BcosError:  # CUDA has failed: it is not known what is still in flight
            return False
        return kept

    def _keeps_memory(self) -> bool:
        return bool(self._graphed) or any(buffer.size for buffer in self._buffers())

    def _buffers(self) -> list[Buffer]:
        in_slots = [buffer for slot in self._slots for buffer in slot.buffers]
        return [*in_slots, *self._blank_buffers.values(), self._scratch]

    def stop(self) -> None:
        """Does nothing: CUDA cannot end work that is on a stream."""

    def close(self) -> None:
        """Free the memory and the stream. Errors are ignored: after a fatal CUDA error every call fails."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(BcosError):
                stack.enter_context(_suppressing(self._cuda.selected()))
            with contextlib.suppress(BcosError):
                self._streams.wait()
            if self._kernels is not None:
                self._kernels.save()
            for execution in (self._execution, *self._graphed.values()):
                execution.free()
            self._graphed.clear()
            self._context = self._kernels = self._engine = self._runtime = self._how = None
            self._free()

    def _free(self) -> None:
        for buffer in self._buffers():
            with contextlib.suppress(BcosError):
                buffer.release()
        if not self._freed:
            for slot in self._slots:
                slot.free_events()
            self._streams.free()
        self._freed = True

    def _queue(self, slot: Slot, feed: Feed, outputs: Mapping[str, TensorSpec]) -> Run:
        feed = self._inputs_of(feed)
        blanks = {name: self._blanks[name].shape for name in self._blanks if name not in feed}
        shapes = {name: array.shape for name, array in feed.items()} | blanks
        addresses = {name: slot.upload(name, array, self._dtypes[name]) for name, array in feed.items()}
        addresses |= {name: self._blank_address(name) for name in blanks}
        execution = self._execution_for(slot, shapes)
        execution.bind_inputs(shapes, addresses)
        results = {name: execution.shape_of(name) for name in self._outputs}
        wanted = {name: self._checked(name, results[name], spec) for name, spec in outputs.items()}
        # TensorRT writes every output, whether it is requested or not.
        sizes = {name: math.prod(shape) * self._dtypes[name].itemsize for name, shape in results.items()}
        execution.bind_outputs({name: slot.device[name].reserve(size) for name, size in sizes.items()})
        self._reserve_scratch(execution, shapes)
        slot.compute_after_uploads()
        if not execution.start():
            raise self._run_error(f"TensorRT cannot run {self._name} on {shapes}")
        slot.download(wanted)
        if self._kernels is not None:
            self._kernels.note(shapes)
        return Run(slot, wanted)

    def _execution_for(self, slot: Slot, shapes: Mapping[str, Shape]) -> Execution:
        if not self._cuda_graphs:
            return self._execution
        key = self._slots.index(slot), tuple(sorted(shapes.items()))
        if key in self._graphed:
            self._graphed.move_to_end(key)
            return self._graphed[key]
        while len(self._graphed) >= _MOST_GRAPHED:
            self._graphed.popitem(last=False)[1].free()
        context = self._engine.create_execution_context(self._how)
        if context is None:
            raise self._run_error(f"TensorRT cannot make another context for {self._name}")
        captures = self._kernels is None  # TensorRT for RTX does it by itself
        made = self._graphed[key] = GraphedExecution(context, *self._how_to_execute(), captures=captures)
        return made

    def _how_to_execute(self) -> tuple[Any, ...]:
        return self._profiles, self._name, self._streams.compute, self._cuda, self._run_error

    def _reserve_scratch(self, execution: Execution, shapes: Mapping[str, Shape]) -> None:
        """All runs share the scratch memory, because they compute one after another."""
        needed = execution.scratch_needed()
        size = scratch_size(needed, int(self._engine.get_device_memory_size_for_profile_v2(execution.profile)))
        if size is None:
            raise self._run_error(f"TensorRT cannot plan the memory of {self._name} for {dict(shapes)}")
        if size > self._scratch.size:
            self._cuda.wait(self._streams.compute)  # a run may be using what is freed now
        execution.bind_scratch(self._scratch.reserve(size), self._scratch.size)

    def _inputs_of(self, feed: Feed) -> Feed:
        """Name the images as the engine does, if it takes pixels."""
        if not self._blanks or IMAGE.name not in feed:
            return feed
        renamed = PIXELS if feed[IMAGE.name].dtype == np.uint8 else ENCODED
        return {renamed if name == IMAGE.name else name: array for name, array in feed.items()}

    def _blank_address(self, name: str) -> int:
        """The blank image for the input that has no images in this run. It stays on the GPU."""
        blank, buffer = self._blanks[name], self._blank_buffers[name]
        if not buffer.size:
            pinned = PinnedBuffer(self._cuda)
            try:
                np.copyto(pinned.array(blank.shape, blank.dtype), blank)
                self._cuda.upload(buffer.reserve(blank.nbytes), pinned.address, blank.nbytes, self._streams.compute)
                self._cuda.wait(self._streams.compute)
            finally:
                pinned.release()
        return buffer.address

    def _run_error(self, message: str) -> BcosError:
        text = f"{message}: {self._errors.last_error}"
        error = OutOfMemoryError(text) if self._errors.out_of_memory() else InferenceError(text)
        self._errors.clear()  # what is reported from now on belongs to later runs
        return error

    def _blank(self, name: str) -> npt.NDArray[Any]:
        _smallest, largest = self._profiles[0][name]
        return blank_image(name, largest[1:])

    def _profile(self, place: int, inputs: list[str]) -> Profile:
        ranges: Profile = {}
        for name in inputs:
            smallest, _usual, largest = self._engine.get_tensor_profile_shape(name, place)
            ranges[name] = tuple(smallest), tuple(largest)
        return ranges

    def _checked(self, name: str, shape: Shape, expected: TensorSpec) -> tuple[Shape, np.dtype[Any]]:
        dtype = self._dtypes[name]
        if shape[1:] != expected.shape[1:] or dtype != expected.dtype:
            raise InferenceError(f"{name} of {self._name} is {dtype}{list(shape)}, expected {expected}")
        return shape, dtype


@contextlib.contextmanager
def _suppressing(context: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Enter the context as usual. Errors of this package on leaving it are ignored."""
    context.__enter__()
    try:
        yield
    finally:
        with contextlib.suppress(BcosError):
            context.__exit__(None, None, None)
