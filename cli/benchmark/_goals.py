"""The performance goals of this package, and the figures of a report that they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bcos_sdk.cli.benchmark._measurements import ONNX_RUNTIME, TORCH, ModelRecord, Report, What

__all__ = ["GOALS", "IMPORT_LIMIT_SECONDS", "Goal"]

Figure = Callable[[ModelRecord, str], float | None]


@dataclass(frozen=True)
class Goal:
    """An upper or lower limit on a ratio, for one model in fp32 on each device."""

    text: str
    model: str
    sense: Literal["≤", "≥"]
    limit: float
    figure: Figure

    def measured(self, report: Report, device: str) -> float | None:
        """Return the ratio in the report; None if it was not measured."""
        models = [model for model in report.models if model.architecture == self.model and model.precision == "fp32"]
        return self.figure(models[0], device) if models else None

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.sense == "≤" else value >= self.limit


def _to_conventional(what: What, batch: int) -> Figure:
    below = ("conventional", "forward", ONNX_RUNTIME)
    return lambda model, device: model.ratio(("ours", what, device), below, batch)  # type: ignore[arg-type]


def _reference_to(what: What, batch: int) -> Figure:
    above = ("reference", what, TORCH)
    return lambda model, device: model.ratio(above, ("ours", what, device), batch)  # type: ignore[arg-type]


def _top_five(model: ModelRecord, device: str) -> float | None:
    return model.ratio(("ours", "explain top 5", device), ("ours", "explain", device), 1)


def _folder(model: ModelRecord, device: str) -> float | None:
    measured = model.devices.get(device)
    return measured.folder.efficiency if measured and measured.folder else None


def _memory(model: ModelRecord, device: str) -> float | None:
    return model.memory_to_reference(device)


GOALS = (
    Goal("predict ÷ conventional in ONNX Runtime, batch 8", "resnet50", "≤", 1.2, _to_conventional("forward", 8)),
    Goal("explain ÷ conventional in ONNX Runtime, batch 8", "resnet50", "≤", 2.4, _to_conventional("explain", 8)),
    Goal("predict ÷ conventional in ONNX Runtime, batch 1", "resnet50", "≤", 1.3, _to_conventional("forward", 1)),
    Goal("explain ÷ conventional in ONNX Runtime, batch 1", "resnet50", "≤", 2.6, _to_conventional("explain", 1)),
    Goal("reference's batched explain ÷ explain, batch 8", "resnet50", "≥", 1.5, _reference_to("explain", 8)),
    Goal(
        "reference's `explain()` ÷ explain with picture", "resnet50", "≥", 2.0, _reference_to("explain with picture", 1)
    ),
    *(
        Goal("reference's batched explain ÷ explain, batch 8", model, "≥", 1.4, _reference_to("explain", 8))
        for model in ("densenet121", "convnext_tiny", "vitc_s_patch1_14", "vgg11_bnu")
    ),
    Goal("five explanations of one image ÷ one", "resnet50", "≤", 3.2, _top_five),
    Goal("folder throughput ÷ backend on arrays in memory", "resnet50", "≥", 0.9, _folder),
    Goal("peak memory ÷ reference's batched explain", "resnet50", "≤", 0.7, _memory),
)
"""The goals of single models. The limit on the import time is below."""

IMPORT_LIMIT_SECONDS = 0.3
