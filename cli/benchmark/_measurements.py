"""The records of a benchmark run: machine, times, memory, and the ratios computed from them."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from typing_extensions import Self

from bcos_sdk._extras import installed_version
from bcos_sdk.errors import InputError, first_faults

__all__ = [
    "ONNX_RUNTIME",
    "TORCH",
    "CallsRecord",
    "Comparison",
    "DeviceRecord",
    "FolderRecord",
    "ImportRecord",
    "Machine",
    "ModelRecord",
    "Report",
    "Side",
    "Timing",
    "What",
    "describe_machine",
]

Comparison = Literal["reference", "conventional", "torch", "compiled"]
Side = Literal["ours", "conventional", "reference", "torch", "compiled"]
What = Literal["forward", "explain", "explain top 5", "explain with picture", "client explain"]

ONNX_RUNTIME = "cpu"
"""The device whose time for the conventional network is the unit of the column "÷ conventional"."""
TORCH = "torch"
"""The device of the reference package."""

_PACKAGES = ("bcos-sdk", "onnxruntime", "onnxruntime-gpu", "openvino", "torch", "torchvision", "bcos", "onnx", "numpy")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Machine(_Record):
    """Processor, system and package versions. It contains no host name and no path."""

    cpu: str
    cores: PositiveInt
    system: str
    python: str
    packages: dict[str, str]
    load: NonNegativeFloat | None = None
    """The load average of the minute before the run; None if the system does not report it."""

    @property
    def is_busy(self) -> bool:
        """Whether other processes make the ratios unreliable. They slow torch down far more than ONNX Runtime."""
        return self.load is not None and self.load > 0.25 * self.cores


def describe_machine() -> Machine:
    """Return the record of this machine."""
    versions = {name: installed_version(name) for name in _PACKAGES}
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: version for name, version in versions.items() if version is not None},
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class ImportRecord(_Record):
    """`import bcos_sdk` in a new process."""

    seconds: PositiveFloat
    imports_torch: bool


class Timing(_Record):
    """The time per image of one case at one batch size."""

    side: Side
    what: What
    device: str
    batch: PositiveInt
    median_ms: PositiveFloat
    least_ms: PositiveFloat

    @property
    def images_per_second(self) -> float:
        return 1e3 / self.median_ms


class FolderRecord(_Record):
    """A folder of JPEGs through `bcos-sdk predict --explain`, from the start of the process to its end."""

    images: PositiveInt
    batch: PositiveInt
    seconds: PositiveFloat
    cold_start_seconds: PositiveFloat
    bare_images_per_second: PositiveFloat
    """The throughput of the backend alone on arrays in memory, measured just before and just after."""

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds

    @property
    def efficiency(self) -> float:
        """Throughput of the whole command ÷ throughput of the backend alone."""
        return self.images_per_second / self.bare_images_per_second

    @property
    def efficiency_without_start(self) -> float | None:
        """The efficiency without the cold start; None if the run took no longer than a cold start."""
        left = self.seconds - self.cold_start_seconds
        return self.images / left / self.bare_images_per_second if left > 0 else None


class CallsRecord(_Record):
    """JPEGs in memory through a client, with its certificates: as one stream, and from many callers at once."""

    images: PositiveInt
    """The images of each measurement in each round."""
    callers: PositiveInt
    bare_images_per_second: PositiveFloat
    """The throughput of the backend alone on arrays in memory."""
    stream_images_per_second: PositiveFloat
    callers_images_per_second: PositiveFloat
    median_ms: PositiveFloat
    """The time of a call with one image, while all callers call."""
    p99_ms: PositiveFloat

    @property
    def stream_efficiency(self) -> float:
        """Throughput of `explain_stream` ÷ throughput of the backend alone."""
        return self.stream_images_per_second / self.bare_images_per_second

    @property
    def callers_to_stream(self) -> float:
        """Throughput of all callers ÷ throughput of `explain_stream`."""
        return self.callers_images_per_second / self.stream_images_per_second

    @property
    def tail(self) -> float:
        """The 99th percentile of the time of a call ÷ its median."""
        return self.p99_ms / self.median_ms


class DeviceRecord(_Record):
    """Measurements on one device that are not timed beside other implementations."""

    cold_start_seconds: PositiveFloat
    """From the start of Python to the first explanation."""
    peak_memory_mb: PositiveFloat
    folder: FolderRecord | None = None
    calls: CallsRecord | None = None


class ModelRecord(_Record):
    """All measurements of one model."""

    name: str
    architecture: str | None
    """Its name in the registry, which selects the networks to compare with."""
    input_size: tuple[PositiveInt, PositiveInt]
    precision: str
    export_seconds: NonNegativeFloat | None
    timings: tuple[Timing, ...]
    devices: dict[str, DeviceRecord]
    reference_peak_memory_mb: PositiveFloat | None = None
    notes: tuple[str, ...] = ()

    def find(self, side: Side, what: What, device: str, batch: int) -> Timing | None:
        wanted = (side, what, device, batch)
        return next((one for one in self.timings if (one.side, one.what, one.device, one.batch) == wanted), None)

    def ratio(self, above: tuple[Side, What, str], below: tuple[Side, What, str], batch: int) -> float | None:
        """Median of `above` ÷ median of `below`; None if one of them was not measured."""
        numerator, denominator = self.find(*above, batch), self.find(*below, batch)
        return numerator.median_ms / denominator.median_ms if numerator and denominator else None

    def to_conventional(self, timing: Timing) -> float | None:
        """This time ÷ the time of the conventional network's forward pass in ONNX Runtime."""
        below = self.find("conventional", "forward", ONNX_RUNTIME, timing.batch)
        return timing.median_ms / below.median_ms if below else None

    def reference_to(self, timing: Timing) -> float | None:
        """The reference package's time for the same task ÷ this time; None if it was not measured."""
        same: What = "explain" if timing.what == "client explain" else timing.what
        theirs = self.find("reference", same, TORCH, timing.batch)
        return theirs.median_ms / timing.median_ms if theirs and timing.side == "ours" else None

    def memory_to_reference(self, device: str) -> float | None:
        """Peak memory on the device ÷ peak memory of the reference package."""
        measured, theirs = self.devices.get(device), self.reference_peak_memory_mb
        return measured.peak_memory_mb / theirs if measured and theirs else None


class Report(_Record):
    """One run. Every ratio compares times that were measured in this run, in one process."""

    schema_version: Literal[1] = 1
    machine: Machine
    threads: PositiveInt
    rounds: PositiveInt
    batches: tuple[PositiveInt, ...]
    devices: tuple[str, ...]
    against: tuple[Comparison, ...]
    imported: ImportRecord
    models: tuple[ModelRecord, ...]

    def to_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the text that `to_json` returned."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InputError(
                f"not a benchmark report: {first_faults(error)}",
                hint="Pass the JSON that `bcos-sdk benchmark --json FILE` wrote.",
            ) from None
