"""A simulated GPU in host memory: the parts of the CUDA runtime and of TensorRT that a client uses.

Work is queued on streams and runs when the host waits for it, as late as streams and events allow, so a result that is
read too early is garbage, as on a real GPU. `Order` finds what an earlier run would break. Every address is checked: it
must lie in an allocation of the right kind. A plan is a small JSON text that names an ONNX graph, which ONNX Runtime
computes.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import json
import types
from collections import deque
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from bcos_sdk.backends.tensorrt import engine_source
from support.gpu_order import HOST, Order

_GARBAGE = 0xCD


class Status(enum.IntEnum):
    cudaSuccess = 0  # noqa: N815
    cudaErrorMemoryAllocation = 2  # noqa: N815
    cudaErrorStreamCaptureInvalidated = 901  # noqa: N815


class FakeCuda(types.ModuleType):
    """`cuda.bindings.runtime`. Every function returns a tuple that starts with its status."""

    cudaHostAllocDefault = 0  # noqa: N815
    cudaStreamNonBlocking = 1  # noqa: N815
    cudaEventDisableTiming = 2  # noqa: N815

    class cudaMemcpyKind(enum.IntEnum):  # noqa: N801
        cudaMemcpyHostToDevice = 1  # noqa: N815
        cudaMemcpyDeviceToHost = 2  # noqa: N815

    class cudaStreamCaptureMode(enum.IntEnum):  # noqa: N801
        cudaStreamCaptureModeThreadLocal = 1  # noqa: N815

    def __init__(self, memory: int = 1 << 30) -> None:
        super().__init__("cuda.bindings.runtime")
        self.__spec__ = ModuleSpec("cuda.bindings.runtime", None)
        self.room = memory
        self.allocations = 0
        self.device: list[int] = []
        self.current = 0
        self.memory: dict[str, dict[int, Any]] = {"device": {}, "pinned": {}}
        self.streams: dict[int, deque[tuple[Callable[[], None], list[bool] | None]]] = {}
        """For each stream, the queued work, and for the record of an event, the event's state."""
        self.events: dict[int, list[bool]] = {}
        """For each event, whether its last record has been reached."""
        self.capturing: int | None = None
        """The stream that is being captured."""
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        """For each captured graph, what queues its work on the stream again."""
        self.log: list[str] = []
        self.order = Order()
        self.can_capture = True
        self._captured: list[Callable[[], None]] = []
        self._handles = itertools.count(7)

    def cudaSetDevice(self, index: int) -> tuple[Status]:  # noqa: N802
        self.device.append(index)
        self.current = index
        return (Status.cudaSuccess,)

    def cudaGetDevice(self) -> tuple[Status, int]:  # noqa: N802
        return Status.cudaSuccess, self.current

    def cudaMemGetInfo(self) -> tuple[Status, int, int]:  # noqa: N802
        return Status.cudaSuccess, self.room, 1 << 30

    def cudaMalloc(self, size: int) -> tuple[Status, int | None]:  # noqa: N802
        return self._allocate("device", size)

    def cudaHostAlloc(self, size: int, _flags: int) -> tuple[Status, int | None]:  # noqa: N802
        return self._allocate("pinned", size)

    def cudaFree(self, address: int) -> tuple[Status]:  # noqa: N802
        return self._free("device", address)

    def cudaFreeHost(self, address: int) -> tuple[Status]:  # noqa: N802
        return self._free("pinned", address)

    def cudaStreamCreateWithFlags(self, _flags: int) -> tuple[Status, int]:  # noqa: N802
        stream = next(self._handles)
        self.streams[stream] = deque()
        return Status.cudaSuccess, stream

    def cudaStreamBeginCapture(self, stream: int, mode: Any) -> tuple[Status]:  # noqa: N802
        assert mode == self.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        assert self.capturing is None
        assert stream in self.streams
        self.capturing, self._captured = stream, []
        return (Status.cudaSuccess,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[Status, int | None]:  # noqa: N802
        assert stream == self.capturing
        self.capturing = None
        if not self.can_capture:
            return Status.cudaErrorStreamCaptureInvalidated, None
        graph = next(self._handles)
        self.graphs[graph] = self._captured
        return Status.cudaSuccess, graph

    def cudaGraphInstantiate(self, graph: int, flags: int) -> tuple[Status, int]:  # noqa: N802
        assert flags == 0
        executable = next(self._handles)
        self.graphs[executable] = self.graphs[graph]
        return Status.cudaSuccess, executable

    def cudaGraphDestroy(self, graph: int) -> tuple[Status]:  # noqa: N802
        del self.graphs[graph]
        return (Status.cudaSuccess,)

    def cudaGraphExecDestroy(self, graph: int) -> tuple[Status]:  # noqa: N802
        return self.cudaGraphDestroy(graph)

    def cudaGraphLaunch(self, graph: int, stream: int) -> tuple[Status]:  # noqa: N802
        self.log.append("launch")
        for work in self.graphs[graph]:
            work()
        return (Status.cudaSuccess,)

    def record_work(self, stream: int, work: Callable[[], None]) -> None:
        """Queue work with `work`, now or when the graph is launched that is being captured."""
        if self.capturing == stream:
            self._captured.append(work)
        else:
            work()

    def cudaStreamDestroy(self, stream: int) -> tuple[Status]:  # noqa: N802
        del self.streams[stream]
        return (Status.cudaSuccess,)

    def cudaMemcpyAsync(self, to: int, source: int, size: int, kind: Any, stream: int) -> tuple[Status]:  # noqa: N802
        up = kind == self.cudaMemcpyKind.cudaMemcpyHostToDevice
        self.check("device" if up else "pinned", to, size)
        self.check("pinned" if up else "device", source, size)
        self.order.step(stream)
        self.order.access(stream, source, size, "a copy", writes=False)
        self.order.access(stream, to, size, "a copy", writes=True)
        self.log.append("upload" if up else "download")
        self.streams[stream].append((lambda: _move(to, source, size), None))
        return (Status.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[Status]:  # noqa: N802
        self.order.synchronize(stream)
        while self.streams[stream]:
            self.streams[stream].popleft()[0]()
        return (Status.cudaSuccess,)

    def cudaEventCreateWithFlags(self, flags: int) -> tuple[Status, int]:  # noqa: N802
        assert flags == self.cudaEventDisableTiming
        event = next(self._handles)
        self.events[event] = [True]  # an event that was never recorded holds nobody up
        return Status.cudaSuccess, event

    def cudaEventDestroy(self, event: int) -> tuple[Status]:  # noqa: N802
        del self.events[event]
        return (Status.cudaSuccess,)

    def cudaEventRecord(self, event: int, stream: int) -> tuple[Status]:  # noqa: N802
        self.order.record(event, stream)
        reached = self.events[event] = [False]
        self.streams[stream].append((lambda: reached.__setitem__(0, True), reached))
        return (Status.cudaSuccess,)

    def cudaStreamWaitEvent(self, stream: int, event: int, _flags: int) -> tuple[Status]:  # noqa: N802
        self.order.wait(stream, event)
        reached = self.events[event]
        self.streams[stream].append((lambda: self._run_until(reached), None))
        return (Status.cudaSuccess,)

    def cudaEventSynchronize(self, event: int) -> tuple[Status]:  # noqa: N802
        self.order.wait(HOST, event)
        self.log.append("wait")
        self._run_until(self.events[event])
        return (Status.cudaSuccess,)

    def _run_until(self, reached: list[bool]) -> None:
        """Run streams until the record of an event is reached, each only as far as that needs."""
        for queue in self.streams.values():
            while not reached[0] and any(reaches is reached for _, reaches in queue):
                queue.popleft()[0]()
        assert reached[0], "a stream waits for an event that nothing will reach"

    def touch(self, address: int, size: int) -> None:
        """The host reads or writes pinned memory."""
        self.order.step(HOST)
        self.order.access(HOST, address, size, "the host", writes=True)

    def check(self, kind: str, address: int, size: int) -> None:
        inside = any(start <= address and address + size <= start + len(m) for start, m in self.memory[kind].items())
        assert inside, f"{size} bytes at {address:#x} are not {kind} memory"

    def _allocate(self, kind: str, size: int) -> tuple[Status, int | None]:
        assert size > 0
        if size > self.room:
            return Status.cudaErrorMemoryAllocation, None
        memory = (ctypes.c_ubyte * size)(*[_GARBAGE] * min(size, 64))
        address = ctypes.addressof(memory)
        self.room -= size
        self.allocations += 1
        self.memory[kind][address] = memory
        return Status.cudaSuccess, address

    def _free(self, kind: str, address: int) -> tuple[Status]:
        size = len(self.memory[kind].pop(address))
        self.order.step(HOST)
        self.order.access(HOST, address, size, "freeing", writes=True)
        self.order.forget(address, size)
        self.room += size
        return (Status.cudaSuccess,)


class FakeTensorRT(types.ModuleType):
    """The part of `tensorrt` that loads and runs engines."""

    __version__ = "10.16.1"

    class Logger:
        INTERNAL_ERROR, ERROR, WARNING = range(3)

        def __init__(self, severity: int) -> None:
            assert severity == self.INTERNAL_ERROR

    class IErrorRecorder:
        """Its subclass gets every error of the runtime that it was given to."""

    class ErrorCodeTRT(enum.Enum):
        INTERNAL_ERROR = 2
        FAILED_ALLOCATION = 5

    class DynamicShapesKernelSpecializationStrategy(enum.Enum):
        LAZY = 0
        EAGER = 1

    class CudaGraphStrategy(enum.Enum):
        DISABLED = 0
        WHOLE_GRAPH_CAPTURE = 1

    class TensorLocation(enum.Enum):
        DEVICE = 0
        HOST = 1

    class TensorIOMode(enum.Enum):
        INPUT = 1
        OUTPUT = 2

    class ExecutionContextAllocationStrategy(enum.Enum):
        STATIC = 0
        USER_MANAGED = 2

    def __init__(self, cuda: FakeCuda, name: str = "tensorrt") -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.cuda = cuda
        self.compiled: list[str] = []
        """The shapes for which TensorRT for RTX compiled kernels, in all processes of a test."""
        self.full = False
        """Whether no memory is left to load an engine."""
        self.runs: list[tuple[int, dict[str, tuple[int, ...]]]] = []
        self.contexts = 0
        self.on_host: set[str] = set()
        """Inputs that TensorRT would read on the host, as it does with values that decide shapes."""

    def Runtime(self, logger: Any) -> Any:  # noqa: N802
        assert isinstance(logger, self.Logger)
        self.runtime = types.SimpleNamespace(deserialize_cuda_engine=self._load, error_recorder=None)
        return self.runtime

    @staticmethod
    def nptype(dtype: str) -> Any:
        return {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(uint8)": np.uint8}[dtype]

    def _load(self, plan: bytes) -> FakeEngine | None:
        if self.full:
            code = self.ErrorCodeTRT.FAILED_ALLOCATION
            self.runtime.error_recorder.report_error(code, "Requested amount of GPU memory could not be allocated")
            return None
        try:
            return FakeEngine(self, json.loads(plan))
        except ValueError:
            code = self.ErrorCodeTRT.INTERNAL_ERROR
            self.runtime.error_recorder.report_error(code, "the plan has no magic tag")
            return None


def fake_plan(graph: Path, profiles: Sequence[dict[str, Any]], channels: str | None = None) -> bytes:
    return json.dumps({"graph": str(graph), "profiles": profiles, "channels": channels}).encode()


class FakeEngine:
    def __init__(self, trt: FakeTensorRT, plan: dict[str, Any]) -> None:
        self.trt = trt
        self.profiles = plan["profiles"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = Path(plan["graph"])
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        source = engine_source(path.read_bytes(), plan["channels"])
        self.session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self.inputs = {one.name: one for one in self.session.get_inputs()}
        self.outputs = {one.name: one for one in self.session.get_outputs()}
        self.num_io_tensors = len(self.inputs) + len(self.outputs)
        self.num_optimization_profiles = len(self.profiles)

    def get_tensor_name(self, place: int) -> Any:
        return [*self.inputs, *self.outputs][place]

    def get_tensor_mode(self, name: str) -> Any:
        return self.trt.TensorIOMode.INPUT if name in self.inputs else self.trt.TensorIOMode.OUTPUT

    def get_tensor_location(self, name: str) -> Any:
        locations = self.trt.TensorLocation
        return locations.HOST if name in self.trt.on_host else locations.DEVICE

    def get_tensor_dtype(self, name: str) -> str:
        return str((self.inputs | self.outputs)[name].type)

    def get_tensor_profile_shape(self, name: str, profile: int) -> Any:
        return self.profiles[profile][name]

    def get_device_memory_size_for_profile_v2(self, profile: int) -> int:
        assert 0 <= profile < self.num_optimization_profiles
        return 1 << 20

    def create_runtime_config(self) -> FakeRuntimeConfig:
        assert self.trt.__name__ == "tensorrt_rtx"
        return FakeRuntimeConfig(self.trt)

    def create_execution_context(self, how: Any) -> FakeContext:
        self.trt.contexts += 1
        context = FakeContext(self)
        context.how = how
        if isinstance(how, FakeRuntimeConfig):
            assert how.dynamic_shapes_kernel_specialization_strategy.name == "EAGER"
            context.kernels, how = how.cache, how.strategy
        assert how is self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        return context


class FakeRuntimeConfig:
    dynamic_shapes_kernel_specialization_strategy: Any = None
    cuda_graph_strategy: Any = None

    def __init__(self, trt: FakeTensorRT) -> None:
        self.strategy: Any = trt.ExecutionContextAllocationStrategy.STATIC
        self.cache: FakeKernels | None = None

    def set_execution_context_allocation_strategy(self, strategy: Any) -> None:
        self.strategy = strategy

    def create_runtime_cache(self) -> FakeKernels:
        return FakeKernels()

    def set_runtime_cache(self, cache: FakeKernels) -> bool:
        self.cache = cache
        return True


class FakeKernels:
    """The runtime cache of TensorRT for RTX: the shapes for which kernels were compiled."""

    def __init__(self) -> None:
        self.shapes: list[str] = []

    def deserialize(self, blob: bytes) -> bool:
        self.shapes = json.loads(blob)
        return True

    def serialize(self) -> bytes:
        return json.dumps(self.shapes).encode()


class FakeContext:
    kernels: FakeKernels | None = None
    how: Any = None

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.cuda = engine.trt.cuda
        self.profile = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.scratch = (0, 0)
        self.ran_with: object = None

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        assert stream in self.cuda.streams
        self.profile = profile
        self.shapes.clear()
        return profile < self.engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, _usual, high = self.engine.profiles[self.profile][name]
        self.shapes[name] = shape
        return all(a <= side <= b for a, side, b in zip(low, shape, high, strict=True))

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        assert self.shapes.keys() == self.engine.inputs.keys(), (
            "an output shape was requested before all input shapes were set"
        )
        free = {"batch": self._batch(), "targets": self._targets()}
        return tuple(free.get(side, side) for side in self.engine.outputs[name].shape)

    def _batch(self) -> int:
        return max(shape[0] for shape in self.shapes.values())

    def update_device_memory_size_for_shapes(self) -> int:
        return 1000 * self._batch() * max(1, self._targets())

    def _targets(self) -> int:
        """Targets or queries per image; 0 for a graph that takes none."""
        return max((self.shapes[name][1] for name in ("targets", "positions") if name in self.shapes), default=0)

    def set_device_memory(self, address: int, size: int) -> None:
        self.scratch = address, size

    def execute_async_v3(self, stream: int) -> bool:
        address, size = self.scratch
        assert size >= self.update_device_memory_size_for_shapes()
        self.cuda.check("device", address, size)
        self.engine.trt.runs.append((self.profile, dict(self.shapes)))
        if self.kernels is not None and str(self.shapes) not in self.kernels.shapes:
            self.kernels.shapes.append(str(self.shapes))
            self.engine.trt.compiled.append(str(self.shapes))
        shapes, addresses, scratch = dict(self.shapes), dict(self.addresses), self.scratch
        if self.cuda.capturing is not None:
            assert self.ran_with == (shapes, addresses, scratch), "a run must come before the capture"
        whole = self.engine.trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        if getattr(self.how, "cuda_graph_strategy", None) is whole and self.ran_with != (shapes, addresses, scratch):
            self.cuda.log.append("capture by TensorRT for RTX")
        self.ran_with = shapes, addresses, scratch

        def work() -> None:
            self._order(stream, shapes, addresses, scratch)
            self.cuda.log.append("compute")
            self.cuda.streams[stream].append((lambda: self._compute(shapes, addresses), None))

        self.cuda.record_work(stream, work)
        return True

    def _order(self, stream: int, shapes: dict[str, Any], addresses: dict[str, int], scratch: tuple[int, int]) -> None:
        self.cuda.order.step(stream)
        self.cuda.check("device", *scratch)
        self.cuda.order.access(stream, *scratch, "computing", writes=True)
        for name in (*self.engine.inputs, *self.engine.outputs):
            shape = shapes.get(name) or self.get_tensor_shape(name)
            size = self._view(addresses[name], name, shape).nbytes
            what = f"computing with {name}"
            self.cuda.order.access(stream, addresses[name], size, what, writes=name in self.engine.outputs)

    def _compute(self, shapes: dict[str, tuple[int, ...]], addresses: dict[str, int]) -> None:
        feed = {name: self._view(addresses[name], name, shape).copy() for name, shape in shapes.items()}
        results = self.engine.session.run(list(self.engine.outputs), feed)
        for name, result in zip(self.engine.outputs, results, strict=True):
            self._view(addresses[name], name, result.shape)[...] = result

    def _view(self, address: int, name: str, shape: tuple[int, ...]) -> Any:
        dtype = np.dtype(self.engine.trt.nptype(self.engine.get_tensor_dtype(name)))
        size = int(np.prod(shape)) * dtype.itemsize
        self.cuda.check("device", address, size)
        raw = (ctypes.c_ubyte * size).from_address(address)
        return np.ctypeslib.as_array(raw).view(dtype).reshape(shape)


def _move(to: int, source: int, size: int) -> None:
    ctypes.memmove(to, source, size)


def cuda_modules(runtime: FakeCuda) -> dict[str, types.ModuleType]:
    """The modules of `import cuda.bindings.runtime`, by name."""
    modules: dict[str, types.ModuleType] = {runtime.__name__: runtime}
    for name in ("cuda", "cuda.bindings"):
        modules[name] = types.ModuleType(name)
        modules[name].__spec__ = ModuleSpec(name, None, is_package=True)
        modules[name].__path__ = []
    return modules
