"""The interface of a runtime, and the devices on which runtimes run.

Everything that differs between runtimes is a property or a method here. No other code checks which runtime it uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._probe import PROBE_SPECS, Outcome, judge, probe_image, probe_model
from bcos_sdk.bundle import Bundle, InputShapes, Manifest
from bcos_sdk.contract import IMAGE, GraphPrecision, Layout
from bcos_sdk.errors import BcosError, DeviceUnavailableError

__all__ = ["Device", "OpenOptions", "Runtime", "check_device", "examine_device", "unavailable"]


@dataclass(frozen=True)
class OpenOptions:
    """How the graphs of a bundle are opened."""

    threads: int | None = None
    """CPU threads; None: the runtime chooses."""
    tf32: bool = False
    """Let a GPU multiply float32 in TF32. CPUs ignore it."""
    trust_engines: bool = False
    """Run compiled engines that came with the bundle. They are code of whoever built them."""
    cuda_graphs: bool = False
    """Let TensorRT launch the kernels of a repeated shape as one CUDA graph. Other runtimes ignore it."""
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
    takes_pixels: ClassVar[bool] = False
    """Whether its graphs also take images as uint8 pixels [B, H, W, 3], and encode them on the device."""
    wide_batches: ClassVar[bool] = False
    """Whether the largest batch bounds images and targets each; otherwise it bounds images × targets."""
    overlaps_runs: ClassVar[bool] = False
    """Whether a second run can be started while the first one is on the device."""
    crashes_are_tried: ClassVar[bool] = False
    """Whether `auto` runs a bundle in a child process before it runs it here for the first time."""
    captures_graphs: ClassVar[bool] = False
    """Whether it can launch the kernels of a repeated shape as one CUDA graph."""
    may_use_tf32_unasked: ClassVar[bool] = False
    """Whether it may round the factors of products to TF32 although it was told not to."""

    @abstractmethod
    def problem(self, index: int) -> str | None:
        """Return why the device cannot be used, or None. No graph is loaded, so not every problem is found."""

    @abstractmethod
    def open_graph(self, graph: Path, bundle: Bundle, index: int, options: OpenOptions) -> Graph:
        """Load one graph of a bundle."""

    @abstractmethod
    def open_onnx(
        self,
        source: Path | bytes,
        index: int,
        *,
        threads: int | None = None,
        shapes: InputShapes | None = None,
    ) -> Graph:
        """Load an ONNX file, or its bytes, that belongs to no bundle. It runs each batch as a whole.

        `shapes` has the smallest, usual and largest shape of each input. Only some runtimes need it.
        """

    def require(self, index: int) -> None:
        """Raise an error if `problem` finds a reason why the device cannot be used."""
        if (problem := self.problem(index)) is not None:
            raise unavailable(self.device_name(index), problem)

    def tf32_choices(self, precision: GraphPrecision, *, asked: bool) -> tuple[bool, ...]:  # noqa: ARG002
        """Whether to allow TF32: what to try first, and what to try if the self-test fails with that."""
        return (asked,)

    def sizes(self, threads: int | None, manifest: Manifest) -> tuple[int, ...]:  # noqa: ARG002
        """The numbers of images, up to the largest batch, that the graphs of a bundle are compiled for."""
        return (1,)

    def version(self) -> str:
        """The version of the library."""
        return ""

    def self_tests_on_open(self, *, by_name: bool) -> bool:
        """Whether to load and self-test both graphs when a bundle is opened. Otherwise each is tested on first use.

        True for `auto`, so that a failed self-test is found while `auto` can still choose the next device.
        """
        return self.on_gpu or not by_name

    def examine(self, index: int) -> Outcome:
        """Compare a convolution, a transposed convolution and a matrix product on the device with float64."""
        try:
            graph = self.open_probe(index)
            try:
                outputs = graph.run({IMAGE.name: probe_image()}, PROBE_SPECS)
            finally:
                graph.close()
        except BcosError as error:
            return Outcome(error.message)
        except Exception as error:  # the errors of runtimes have no other common base
            return Outcome(f"it failed while running: {error}")
        return judge(outputs, self.probe_precision(index))

    def open_probe(self, index: int) -> Graph:
        """Load the graph of `examine`."""
        return self.open_onnx(probe_model(self.probe_precision(index)), index)

    def probe_precision(self, index: int) -> GraphPrecision:  # noqa: ARG002
        """The precision of `examine`: "fp16" if the device has no products in float32."""
        return "fp32"

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
    """Return None if the device computes the products of a network correctly, else the reason why it does not."""
    return examine_device(device).problem


def examine_device(device: Device) -> Outcome:
    """Compare the products of a network on the device with float64: why it cannot be used, or its precision."""
    problem = device.problem()
    return device.runtime.examine(device.index) if problem is None else Outcome(problem)


def unavailable(device: str, reason: str) -> DeviceUnavailableError:
    """The error for a device that cannot be used."""
    return DeviceUnavailableError(
        f"device {device} does not work here: {reason}",
        source=device,
        hint='Use device="cpu", or device="auto" for the fastest device that works.',
    )
