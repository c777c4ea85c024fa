"""The interface of a runtime, and the devices on which runtimes run.

Everything that differs between runtimes is a property or a method here. No other code checks which runtime it uses.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from bcos_sdk.backends._graph import Graph, TensorSpec
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import Layout
from bcos_sdk.errors import BcosError, DeviceUnavailableError

__all__ = ["Device", "OpenOptions", "Runtime", "check_device", "unavailable"]

_ADD = base64.b64decode("CAo6NQoOCgF4CgF4EgF5IgNBZGQSAWdaDwoBeBIKCggIARIECgIIAmIPCgF5EgoKCAgBEgQKAggCQgQKABAS")
"""An ONNX model (opset 18): y = x + x for two float32 numbers."""


@dataclass(frozen=True)
class OpenOptions:
    """How the graphs of a bundle are opened."""

    threads: int | None = None
    """CPU threads; None: the runtime chooses."""
    tf32: bool = False
    """Let a GPU multiply float32 in TF32. CPUs ignore it."""
    trust_engines: bool = False
    """Run compiled engines that came with the bundle. They are code of whoever built them."""
    by_name: bool = True
    """The user named the device. False: `auto` tries it, so nothing that takes minutes may be started."""


class Runtime(ABC):
    """A library that runs graphs on one kind of device. There is one object per runtime, listed in `RUNTIMES`."""

    name: ClassVar[str]
    """What users type to choose it."""
    on_gpu: ClassVar[bool] = False
    """Whether it runs on GPUs: its devices then have an index ("cuda:1"), and TF32 applies."""
    layout: ClassVar[Layout] = Layout.GRID
    """The layout of the explain graph that it runs fastest."""
    compiles_per_size: ClassVar[bool] = False
    """Whether each number of images or targets is compiled separately, so that each needs its own self-test."""

    @abstractmethod
    def problem(self, index: int) -> str | None:
        """Return why the device cannot be used, or None. No graph is loaded, so not every problem is found."""

    @abstractmethod
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        """Load one graph of a bundle."""

    @abstractmethod
    def open_onnx(self, source: Path | bytes, index: int, *, threads: int | None = None) -> Graph:
        """Load an ONNX file, or its bytes, that belongs to no bundle. It runs each batch as a whole."""

    def require(self, index: int) -> None:
        """Raise an error if `problem` finds a reason why the device cannot be used."""
        if (problem := self.problem(index)) is not None:
            raise unavailable(self.device_name(index), problem)

    def self_tests_on_open(self, *, by_name: bool) -> bool:
        """Whether to load and self-test both graphs when a bundle is opened. Otherwise each is tested on first use.

        True for `auto`, so that a failed self-test is found while `auto` can still choose the next device.
        """
        return self.on_gpu or not by_name

    def try_out(self, index: int) -> str | None:
        """Run y = x + x on the device. Return why that failed, or None."""
        x = np.array([1, 2], np.float32)
        try:
            result = self.open_onnx(_ADD, index).run({"x": x}, {"y": TensorSpec(x.shape, x.dtype.name)})["y"]
        except BcosError as error:
            return error.message
        except Exception as error:  # the errors of runtimes have no other common base
            return f"it failed while running: {error}"
        return None if result.tolist() == [2, 4] else "it computes wrong results"

    def device_name(self, index: int) -> str:
        """The name of a device, for example "cpu" or "cuda:0"."""
        return f"{self.name}:{index}" if self.on_gpu else self.name


@dataclass(frozen=True)
class Device:
    """A runtime, and the index of the GPU that it runs on (0 without a GPU)."""

    runtime: Runtime
    index: int = 0

    def __str__(self) -> str:
        return self.runtime.device_name(self.index)

    def problem(self) -> str | None:
        """Return why the device cannot be used, or None. No graph is loaded, so not every problem is found."""
        return self.runtime.problem(self.index)

    def require(self) -> None:
        """Raise an error if `problem` finds a reason why the device cannot be used."""
        self.runtime.require(self.index)


def check_device(device: Device) -> str | None:
    """Return None if the device computes y = x + x correctly, else the reason why it does not."""
    return device.problem() or device.runtime.try_out(device.index)


def unavailable(device: str, reason: str) -> DeviceUnavailableError:
    """The error for a device that cannot be used."""
    return DeviceUnavailableError(
        f"device {device} does not work here: {reason}",
        source=device,
        hint='Use device="cpu", or device="auto" for the fastest device that works.',
    )
