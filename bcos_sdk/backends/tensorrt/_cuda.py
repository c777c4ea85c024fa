"""The part of CUDA that a client needs: memory on the GPU, pinned memory on the host, streams."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._extras import require
from bcos_sdk.errors import BcosError, InferenceError, OutOfMemoryError

__all__ = ["Buffer", "Cuda", "PinnedBuffer"]

Array = npt.NDArray[Any]


class Cuda:
    """One GPU through `cuda.bindings`. CUDA selects a GPU per thread, so each thread must call `enter` first."""

    def __init__(self, index: int) -> None:
        require("cuda.bindings", purpose="Using a GPU")
        self._runtime: Any = import_module("cuda.bindings.runtime")
        self._index = index
        self.enter()

    def enter(self) -> None:
        """Select this GPU for the calling thread."""
        self._call("cudaSetDevice", self._index)

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

    def upload(self, device: int, host: int, size: int, stream: int) -> None:
        """Queue a copy from pinned memory to the GPU."""
        self._call("cudaMemcpyAsync", device, host, size, self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice, stream)

    def download(self, host: int, device: int, size: int, stream: int) -> None:
        """Queue a copy from the GPU to pinned memory."""
        self._call("cudaMemcpyAsync", host, device, size, self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost, stream)

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
