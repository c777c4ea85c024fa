"""The part of CUDA that a client needs: memory on the GPU, pinned memory on the host, streams and events."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._extras import require
from bcos_sdk.errors import BcosError, InferenceError, OutOfMemoryError

__all__ = ["Buffer", "Cuda", "PinnedBuffer"]

Array = npt.NDArray[Any]


class Cuda:
    """One GPU through `cuda.bindings`. CUDA selects a GPU per thread, so calls are made inside `selected`."""

    def __init__(self, index: int) -> None:
        require("cuda.bindings", purpose="Using a GPU")
        self._runtime: Any = import_module("cuda.bindings.runtime")
        self.index = index
        with self.selected():  # fails now if the GPU does not work
            pass

    def select(self) -> None:
        """Select this GPU for the calling thread, for as long as the thread lives."""
        self._call("cudaSetDevice", self.index)

    @contextlib.contextmanager
    def selected(self) -> Iterator[None]:
        """Select this GPU for the calling thread, and afterwards again the GPU that the thread had selected before."""
        before = int(self._call("cudaGetDevice"))
        self.select()
        try:
            yield
        finally:
            if before != self.index:
                self._call("cudaSetDevice", before)

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes on the GPU and return their address."""
        return int(self._call("cudaMalloc", size))

    def free(self, address: int) -> None:
        self._call("cudaFree", address)

    def allocate_pinned(self, size: int) -> int:
        """Allocate `size` bytes of pinned host memory, which the GPU copies without the CPU; return their address."""
        return int(self._call("cudaHostAlloc", size, self._runtime.cudaHostAllocDefault))

    def free_pinned(self, address: int) -> None:
        self._call("cudaFreeHost", address)

    def new_stream(self) -> int:
        # The default stream would wait for all other streams of the process.
        return int(self._call("cudaStreamCreateWithFlags", self._runtime.cudaStreamNonBlocking))

    def free_stream(self, stream: int) -> None:
        self._call("cudaStreamDestroy", stream)

    def new_event(self) -> int:
        return int(self._call("cudaEventCreateWithFlags", self._runtime.cudaEventDisableTiming))

    def free_event(self, event: int) -> None:
        self._call("cudaEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        """Let the event stand for all work that is queued on the stream now."""
        self._call("cudaEventRecord", event, stream)

    def wait_for_event(self, stream: int, event: int) -> None:
        """Let work that is queued on the stream from now on wait for the event. Does not block."""
        self._call("cudaStreamWaitEvent", stream, event, 0)

    def wait_for_host(self, event: int) -> None:
        """Block until the work that the event stands for is done."""
        self._call("cudaEventSynchronize", event)

    def upload(self, device: int, host: int, size: int, stream: int) -> None:
        """Queue a copy from pinned memory to the GPU."""
        self._call("cudaMemcpyAsync", device, host, size, self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice, stream)

    def download(self, host: int, device: int, size: int, stream: int) -> None:
        """Queue a copy from the GPU to pinned memory."""
        self._call("cudaMemcpyAsync", host, device, size, self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost, stream)

    def capture(self, stream: int, queue: Callable[[], bool]) -> int:
        """Record what `queue` queues on the stream, without running it, and return it as a graph that can be launched.

        An error leaves the stream as it was.
        """
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", stream, mode)
        queued, recorded = False, None
        try:
            queued = queue()
        finally:
            with contextlib.suppress(BcosError):  # the capture was invalidated, and has ended
                recorded = self._call("cudaStreamEndCapture", stream)
        try:
            if not queued or recorded is None:
                raise InferenceError("TensorRT cannot be captured on a stream")
            return int(self._call("cudaGraphInstantiate", recorded, 0))
        finally:
            if recorded is not None:
                self._call("cudaGraphDestroy", recorded)

    def launch(self, graph: int, stream: int) -> None:
        """Queue a captured graph."""
        self._call("cudaGraphLaunch", graph, stream)

    def free_graph(self, graph: int) -> None:
        self._call("cudaGraphExecDestroy", graph)

    def wait(self, stream: int) -> None:
        """Block until the stream has done all queued work."""
        self._call("cudaStreamSynchronize", stream)

    def _call(self, function: str, *arguments: Any) -> Any:
        status, *results = getattr(self._runtime, function)(*arguments)
        if int(status):
            raise _error(function, int(status), getattr(status, "name", ""))
        return results[0] if results else None


class Buffer:
    """Memory on the GPU that grows to the largest requested size and is reused for smaller ones."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.address = 0
        self.size = 0

    def reserve(self, size: int) -> int:
        """Return the address of at least `size` bytes. Growing discards the contents."""
        if size > self.size:
            self.release()
            self.address = self._allocate(size)
            self.size = size
        return self.address

    def release(self) -> None:
        if self.size:
            address, self.address, self.size = self.address, 0, 0
            self._free(address)

    def _allocate(self, size: int) -> int:
        return self._cuda.allocate(size)

    def _free(self, address: int) -> None:
        self._cuda.free(address)


class PinnedBuffer(Buffer):
    """A buffer in pinned host memory, accessible as numpy arrays."""

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return the first bytes of the buffer as an array of this shape and dtype."""
        size = int(np.prod(shape)) * dtype.itemsize
        raw = (ctypes.c_byte * size).from_address(self.reserve(size))
        return np.ctypeslib.as_array(raw).view(dtype).reshape(shape)

    def _allocate(self, size: int) -> int:
        return self._cuda.allocate_pinned(size)

    def _free(self, address: int) -> None:
        self._cuda.free_pinned(address)


_OUT_OF_MEMORY = 2
_DRIVER_TOO_OLD = 35


def _error(function: str, status: int, name: str) -> BcosError:
    message = f"{function} failed with CUDA error {status} {name}".rstrip()
    if status == _DRIVER_TOO_OLD:
        message += ": there is no driver, or it is too old for cuda-bindings (pip install 'cuda-bindings<13')"
    return OutOfMemoryError(message) if status == _OUT_OF_MEMORY else InferenceError(message)
