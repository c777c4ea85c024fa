"""A simulated GPU in host memory: the parts of the CUDA runtime and of TensorRT that a client uses.

Work is queued on streams and runs when the stream is synchronised, so a result that is read too early is garbage, as on
a real GPU. Every address is checked: it must lie in an allocation of the right kind. A plan is a small JSON text that
names an ONNX graph, which ONNX Runtime computes.
"""

from __future__ import annotations

import ctypes
import enum
import json
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

_GARBAGE = 0xCD


class Status(enum.IntEnum):
    cudaSuccess = 0  # noqa: N815
    cudaErrorMemoryAllocation = 2  # noqa: N815


class FakeCuda(types.ModuleType):
    """`cuda.bindings.runtime`. Every function returns a tuple that starts with its status."""

    cudaHostAllocDefault = 0  # noqa: N815
    cudaStreamNonBlocking = 1  # noqa: N815

    class cudaMemcpyKind(enum.IntEnum):  # noqa: N801
        cudaMemcpyHostToDevice = 1  # noqa: N815
        cudaMemcpyDeviceToHost = 2  # noqa: N815

    def __init__(self, memory: int = 1 << 30) -> None:
        super().__init__("cuda.bindings.runtime")
        self.__spec__ = ModuleSpec("cuda.bindings.runtime", None)
        self.room = memory
        self.allocations = 0
        self.device: list[int] = []
        self.memory: dict[str, dict[int, Any]] = {"device": {}, "pinned": {}}
        self.streams: dict[int, list[Callable[[], None]]] = {}

    def cudaSetDevice(self, index: int) -> tuple[Status]:  # noqa: N802
        self.device.append(index)
        return (Status.cudaSuccess,)

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
        stream = 7 + len(self.streams)
        self.streams[stream] = []
        return Status.cudaSuccess, stream

    def cudaStreamDestroy(self, stream: int) -> tuple[Status]:  # noqa: N802
        del self.streams[stream]
        return (Status.cudaSuccess,)

    def cudaMemcpyAsync(self, to: int, source: int, size: int, kind: Any, stream: int) -> tuple[Status]:  # noqa: N802
        up = kind == self.cudaMemcpyKind.cudaMemcpyHostToDevice
        self.check("device" if up else "pinned", to, size)
        self.check("pinned" if up else "device", source, size)
        self.streams[stream].append(lambda: _move(to, source, size))
        return (Status.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[Status]:  # noqa: N802
        queue, self.streams[stream] = self.streams[stream], []
        for work in queue:
            work()
        return (Status.cudaSuccess,)

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
        self.room += len(self.memory[kind].pop(address))
        return (Status.cudaSuccess,)


class FakeTensorRT(types.ModuleType):
    """The part of `tensorrt` that loads and runs engines."""

    __version__ = "10.16.1"

    class ILogger:
        INTERNAL_ERROR, ERROR, WARNING = range(3)

    class TensorIOMode(enum.Enum):
        INPUT = 1
        OUTPUT = 2

    class ExecutionContextAllocationStrategy(enum.Enum):
        STATIC = 0
        USER_MANAGED = 2

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__("tensorrt")
        self.__spec__ = ModuleSpec("tensorrt", None)
        self.cuda = cuda
        self.runs: list[tuple[int, dict[str, tuple[int, ...]]]] = []
        self.contexts = 0

    def Runtime(self, logger: Any) -> Any:  # noqa: N802
        self.logger = logger
        return types.SimpleNamespace(deserialize_cuda_engine=self._load)

    @staticmethod
    def nptype(dtype: str) -> Any:
        return {"tensor(float)": np.float32, "tensor(int64)": np.int64}[dtype]

    def _load(self, plan: bytes) -> FakeEngine | None:
        try:
            return FakeEngine(self, json.loads(plan))
        except ValueError:
            self.logger.log(self.ILogger.ERROR, "the plan has no magic tag")
            return None


def fake_plan(graph: Path, profiles: list[dict[str, Any]]) -> bytes:
    return json.dumps({"graph": str(graph), "profiles": profiles}).encode()


class FakeEngine:
    def __init__(self, trt: FakeTensorRT, plan: dict[str, Any]) -> None:
        self.trt = trt
        self.profiles = plan["profiles"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(plan["graph"], options, providers=["CPUExecutionProvider"])
        self.inputs = {one.name: one for one in self.session.get_inputs()}
        self.outputs = {one.name: one for one in self.session.get_outputs()}
        self.num_io_tensors = len(self.inputs) + len(self.outputs)
        self.num_optimization_profiles = len(self.profiles)

    def get_tensor_name(self, place: int) -> Any:
        return [*self.inputs, *self.outputs][place]

    def get_tensor_mode(self, name: str) -> Any:
        return self.trt.TensorIOMode.INPUT if name in self.inputs else self.trt.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> str:
        return str((self.inputs | self.outputs)[name].type)

    def get_tensor_profile_shape(self, name: str, profile: int) -> Any:
        return self.profiles[profile][name]

    def create_execution_context(self, strategy: Any) -> FakeContext:
        assert strategy is self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        self.trt.contexts += 1
        return FakeContext(self)


class FakeContext:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.cuda = engine.trt.cuda
        self.profile = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.scratch = (0, 0)

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
        free = {"batch": self.shapes["image"][0], "targets": self.shapes.get("targets", (0, 0))[1]}
        return tuple(free.get(side, side) for side in self.engine.outputs[name].shape)

    def update_device_memory_size_for_shapes(self) -> int:
        return 1000 * self.shapes["image"][0] * self.shapes.get("targets", (0, 1))[1]

    def set_device_memory(self, address: int, size: int) -> None:
        self.scratch = address, size

    def execute_async_v3(self, stream: int) -> bool:
        address, size = self.scratch
        assert size >= self.update_device_memory_size_for_shapes()
        self.cuda.check("device", address, size)
        self.engine.trt.runs.append((self.profile, dict(self.shapes)))
        shapes, addresses = dict(self.shapes), dict(self.addresses)
        self.cuda.streams[stream].append(lambda: self._compute(shapes, addresses))
        return True

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
