"""The buffers of one run on the GPU. A graph has two, so that one is filled while the GPU works on the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from bcos_sdk.backends._graph import Arrays, ImageList
from bcos_sdk.backends.tensorrt._cuda import Array, Buffer, Cuda, PinnedBuffer
from bcos_sdk.errors import BcosError

__all__ = ["Outputs", "Slot", "Streams"]

Outputs: TypeAlias = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and type of each output."""


class Streams:
    """Three streams: copies to the GPU, computation, copies to the host. Each does its work in order."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.up, self.compute, self.down = (cuda.new_stream() for _ in range(3))

    def wait(self) -> None:
        """Block until all of them have done their work."""
        for stream in (self.up, self.compute, self.down):
            self._cuda.wait(stream)

    def free(self) -> None:
        for stream in (self.up, self.compute, self.down):
            with contextlib.suppress(BcosError):
                self._cuda.free_stream(stream)


class Slot:
    """Buffers on GPU and host for one run, and the events that order its steps.

    upload → `uploaded` → computation → `computed` → download → `downloaded`. The slot is free for the next run when the
    host has waited for `downloaded`.
    """

    def __init__(self, cuda: Cuda, streams: Streams, names: Iterable[str]) -> None:
        self._cuda, self._streams = cuda, streams
        names = list(names)
        self.device = {name: Buffer(cuda) for name in names}
        self._host = {name: PinnedBuffer(cuda) for name in names}
        self._uploaded, self._computed, self._downloaded = (cuda.new_event() for _ in range(3))

    def upload(self, name: str, array: Array | ImageList, dtype: np.dtype[Any]) -> int:
        """Copy the array to pinned memory, queue its copy to the GPU, and return its address there."""
        staged = self._host[name].array(array.shape, dtype)
        if isinstance(array, ImageList):
            array.write_to(staged)
        else:
            np.copyto(staged, array, casting="safe")
        address = self.device[name].reserve(staged.nbytes)
        self._cuda.upload(address, self._host[name].address, staged.nbytes, self._streams.up)
        return address

    def compute_after_uploads(self) -> None:
        """Let what is queued next on the compute stream wait for the uploads."""
        self._cuda.record(self._uploaded, self._streams.up)
        self._cuda.wait_for_event(self._streams.compute, self._uploaded)

    def download(self, shapes: Outputs) -> None:
        """Queue the copies of these outputs to the host, after what is queued on the compute stream."""
        self._cuda.record(self._computed, self._streams.compute)
        self._cuda.wait_for_event(self._streams.down, self._computed)
        for name, (shape, dtype) in shapes.items():
            size = int(np.prod(shape)) * dtype.itemsize
            host = self._host[name].reserve(size)
            self._cuda.download(host, self.device[name].address, size, self._streams.down)
        self._cuda.record(self._downloaded, self._streams.down)

    def results(self, shapes: Outputs) -> Arrays:
        """Wait for the downloads and return copies, because the next run overwrites the pinned memory."""
        self._cuda.wait_for_host(self._downloaded)
        return {name: self._host[name].array(*how).copy() for name, how in shapes.items()}

    @property
    def buffers(self) -> list[Buffer]:
        return [*self.device.values(), *self._host.values()]

    def free_events(self) -> None:
        for event in (self._uploaded, self._computed, self._downloaded):
            with contextlib.suppress(BcosError):
                self._cuda.free_event(event)
