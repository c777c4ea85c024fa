"""The report of a run: what was timed, on which machine, and the ratios that follow from it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from typing_extensions import Self

from bcos_sdk.errors import InputError, first_faults

__all__ = [
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
]

Comparison = Literal["reference", "conventional"]
Side = Literal["ours", "conventional", "reference"]
What = Literal["forward", "explain", "explain top 5", "explain with picture", "client explain"]

ONNX_RUNTIME = "cpu"
"""The device on which the conventional network sets the scale."""
TORCH = "torch"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Machine(_Record):
    """Where the figures come from. It names no host and no folder."""

    cpu: str
    cores: PositiveInt
    system: str
    python: str
    packages: dict[str, str]
    load: NonNegativeFloat | None = None
    """The load average of the minute before the run; None where the system does not say."""

    @property
    def is_busy(self) -> bool:
        """Whether ratios are to be doubted: torch loses far more time to others on its cores than ONNX Runtime does."""
        return self.load is not None and self.load > 0.25 * self.cores


class ImportRecord(_Record):
    """`import bcos_sdk` in a fresh process."""

    seconds: PositiveFloat
    imports_torch: bool


class Timing(_Record):
    """One contender at one batch size; the times are those of one image."""

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
    """What the engine alone does with ready arrays, just before and just after."""

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds

    @property
    def efficiency(self) -> float:
        """Of the engine's own throughput, how much is left from decoding to the written result."""
        return self.images_per_second / self.bare_images_per_second

    @property
    def efficiency_without_start(self) -> float | None:
        """The same without the time to the first result; None if that was all there was."""
        left = self.seconds - self.cold_start_seconds
        return self.images / left / self.bare_images_per_second if left > 0 else None


class DeviceRecord(_Record):
    """What was measured in processes of their own."""

    cold_start_seconds: PositiveFloat
    """From the start of Python to the first explanation."""
    peak_memory_mb: PositiveFloat
    folder: FolderRecord | None = None


class ModelRecord(_Record):
    """Everything about one model."""

    name: str
    architecture: str | None
    """Its name in the registry, by which it was compared with others."""
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
        """The quotient of two medians of one run; None if one of them was not measured."""
        numerator, denominator = self.find(*above, batch), self.find(*below, batch)
        return numerator.median_ms / denominator.median_ms if numerator and denominator else None

    def to_conventional(self, timing: Timing) -> float | None:
        """How many times a forward of the conventional network in ONNX Runtime this takes."""
        below = self.find("conventional", "forward", ONNX_RUNTIME, timing.batch)
        return timing.median_ms / below.median_ms if below else None

    def reference_to(self, timing: Timing) -> float | None:
        """How many times as long the reference package takes for the same; None if it has nothing of the kind."""
        same: What = "explain" if timing.what == "client explain" else timing.what
        theirs = self.find("reference", same, TORCH, timing.batch)
        return theirs.median_ms / timing.median_ms if theirs and timing.side == "ours" else None

    def memory_to_reference(self, device: str) -> float | None:
        measured, theirs = self.devices.get(device), self.reference_peak_memory_mb
        return measured.peak_memory_mb / theirs if measured and theirs else None


class Report(_Record):
    """One run: every ratio in it is of times that were measured side by side."""

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
        """What `to_json` wrote."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InputError(f"this is no report of a benchmark: {first_faults(error)}") from None
