"""Decode images in child processes, which can be ended: for images from strangers."""

from __future__ import annotations

import queue
import threading
import weakref
from types import TracebackType

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from typing_extensions import Self

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import ClientClosedError, DecoderCrashedError, ImageTooLargeError, InputError, UnreadableImageError
from bcos_sdk.images._decoding_frames import Header
from bcos_sdk.images._decoding_process import DecodingProcess
from bcos_sdk.images._geometry import Geometry
from bcos_sdk.images._loaded import Decoded
from bcos_sdk.limits import Limits

__all__ = ["DecodingPool"]

_KINDS = {kind.code: kind for kind in (InputError, UnreadableImageError, ImageTooLargeError)}
"""The errors that decoding an image may have."""
_SECONDS_TO_END = 5.0


class _Idle:
    """The processes that wait for work; the one that was used last comes first, so that few are started.

    `queue.LifoQueue` holds a lock in Python code. An interrupt there would leave it locked.
    """

    def __init__(self) -> None:
        self._processes: list[DecodingProcess] = []
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()

    def put(self, process: DecodingProcess) -> None:
        self._processes.append(process)
        self._places.put(None)

    def get(self, timeout: float | None = None) -> DecodingProcess:
        """Wait for a process. Raises `queue.Empty` after the timeout."""
        self._places.get(timeout=timeout)
        return self._processes.pop()


class DecodingPool:
    """At most `size` child processes, each started when it is first needed. Threads may share a pool."""

    def __init__(self, size: int) -> None:
        self._processes = [DecodingProcess() for _ in range(size)]
        self._idle = _Idle()
        for process in self._processes:
            self._idle.put(process)
        self._starting = threading.Lock()
        self._closed = False
        weakref.finalize(self, _end_all, self._processes)

    def decode(self, contents: bytes, source: str, spec: InputSpec, limits: Limits, enlarge: int) -> Decoded:
        """The same result or error as `decode_image`; an `ImageError` if the process was ended or crashed."""
        height, width = spec.size
        size = height * width * 3
        job = {
            "source": source,
            "size": len(contents),
            "spec": spec.model_dump(mode="json"),
            "limits": limits.model_dump(mode="json"),
            "enlarge": enlarge,
        }
        process = self._idle.get()
        try:
            self._check_open()
            reply, arrays = process.run(job, contents, (size, size * enlarge**2), limits.decoding_seconds)
        finally:
            self._idle.put(process)
        try:
            if "code" in reply:
                kind = _KINDS[reply["code"]]
                raise kind(str(reply["message"]), source=source, hint=reply["hint"])
            return _decoded(reply, arrays, spec, enlarge)
        except (KeyError, TypeError, ValidationError):
            raise DecoderCrashedError(f"the decoder of {source} sent a wrong reply", source=source) from None

    def start(self) -> None:
        """Start all child processes now."""
        taken = []
        with self._starting:  # two threads that take all processes would wait for each other
            try:
                for _ in self._processes:
                    taken.append(self._idle.get())
                    self._check_open()
                    taken[-1].start()
            finally:
                for process in taken:
                    self._idle.put(process)

    def close(self) -> None:
        """End all child processes. Images that they decode fail with `ClientClosedError`."""
        self._closed = True
        for process in self._processes:
            process.close()
        ended = []
        try:
            for _ in self._processes:
                ended.append(self._idle.get(timeout=_SECONDS_TO_END))
                ended[-1].end()
        except queue.Empty:  # its thread frees the process
            pass
        for process in ended:
            self._idle.put(process)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the client was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _decoded(reply: Header, arrays: list[bytearray], spec: InputSpec, enlarge: int) -> Decoded:
    height, width = spec.size
    return Decoded(
        _array(arrays[0], height, width),
        notes=tuple(map(str, reply["notes"])),
        geometry=Geometry.model_validate(reply["geometry"]),
        display=_array(arrays[1], height * enlarge, width * enlarge) if len(arrays) > 1 else None,
    )


def _array(body: bytearray, height: int, width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(body, np.uint8).reshape(height, width, 3)


def _end_all(processes: list[DecodingProcess]) -> None:
    for process in processes:
        process.close()
        process.end()
