"""The performance goals of this package, and the figures of a report that they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from bcos_sdk.cli.benchmark._measurements import ONNX_RUNTIME, TORCH, CallsRecord, ModelRecord, Report, What

__all__ = ["GOALS", "IMPORT_LIMIT_SECONDS", "Goal"]

Figure = Callable[[ModelRecord, str], float | None]


@dataclass(frozen=True)
class Goal:
    """An upper or lower limit on a ratio, for one model in fp32 on some devices. Other devices are only measured."""

    text: str
    model: str
    sense: Literal["≤", "≥"]
    limits: Mapping[str, float]
    figure: Figure

    def measured(self, report: Report, device: str) -> float | None:
        """Return the ratio in the report; None if it was not measured."""
        models = [model for model in report.models if model.architecture == self.model and model.precision == "fp32"]
        return self.figure(models[0], device) if models else None

    def is_met(self, value: float, device: str) -> bool | None:
        """Whether the ratio is within the limit of the device; None if there is no limit."""
        limit = self.limits.get(device)
        if limit is None:
            return None
        return value <= limit if self.sense == "≤" else value >= limit

    def describe_limits(self) -> str:
        """For example "≤ 1.1 on openvino, 1.35 on cpu"."""
        return f"{self.sense} " + ", ".join(f"{limit:g} on {device}" for device, limit in self.limits.items())


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
    return measured.folder.efficiency_without_start if measured and measured.folder else None


def _calls(figure: Callable[[CallsRecord], float]) -> Figure:
    def of(model: ModelRecord, device: str) -> float | None:
        measured = model.devices.get(device)
        calls = measured.calls if measured else None
        return figure(calls) if calls and calls.callers == _CALLERS else None

    return of


def _memory(model: ModelRecord, device: str) -> float | None:
    return model.memory_to_reference(device)


def _cold_start(model: ModelRecord, device: str) -> float | None:
    measured = model.devices.get(device)
    return measured.cold_start_seconds if measured else None


_CALLERS = 32
_SMALL = "cifar10_resnet18_w16"
_LIMITS = {  # of predict and of explain on OpenVINO, as multiples of a conventional forward pass
    "resnet50": (1.1, 2.3),
    "densenet121": (1.15, 2.3),
    "convnext_tiny": (1.0, 2.1),
    "vitc_s_patch1_14": (1.0, 2.05),
    "vgg11_bnu": (1.4, 2.9),
}
_ON_CPU = {"resnet50": ({"cpu": 1.35}, {"cpu": 2.7})}
_EVERYWHERE = ("openvino", "cpu")


def _on(devices: Iterable[str], limit: float) -> dict[str, float]:
    return dict.fromkeys(devices, limit)


def _of_model(model: str, predict: float, explain: float) -> list[Goal]:
    predict_on_cpu, explain_on_cpu = _ON_CPU.get(model, ({}, {}))
    return [
        Goal(
            "predict ÷ conventional in ONNX Runtime, batch 8",
            model,
            "≤",
            {"openvino": predict} | predict_on_cpu,
            _to_conventional("forward", 8),
        ),
        Goal(
            "explain ÷ conventional in ONNX Runtime, batch 8",
            model,
            "≤",
            {"openvino": explain} | explain_on_cpu,
            _to_conventional("explain", 8),
        ),
        Goal(
            "reference's batched explain ÷ explain, batch 8",
            model,
            "≥",
            _on(_EVERYWHERE, 1.4),
            _reference_to("explain", 8),
        ),
        Goal("peak memory ÷ reference's batched explain", model, "≤", {"openvino": 0.6}, _memory),
    ]


GOALS = (
    *(goal for model, limits in _LIMITS.items() for goal in _of_model(model, *limits)),
    Goal(
        "predict ÷ conventional in ONNX Runtime, batch 1",
        "resnet50",
        "≤",
        {"openvino": 1.3},
        _to_conventional("forward", 1),
    ),
    Goal(
        "explain ÷ conventional in ONNX Runtime, batch 1",
        "resnet50",
        "≤",
        {"openvino": 2.6},
        _to_conventional("explain", 1),
    ),
    Goal(
        "reference's `explain()` ÷ explain with picture",
        "resnet50",
        "≥",
        _on(_EVERYWHERE, 2.0),
        _reference_to("explain with picture", 1),
    ),
    Goal("five explanations of one image ÷ one", "resnet50", "≤", _on(_EVERYWHERE, 3.2), _top_five),
    Goal("folder throughput without start ÷ backend", "resnet50", "≥", _on(_EVERYWHERE, 0.9), _folder),
    Goal("folder throughput without start ÷ backend", _SMALL, "≥", _on(_EVERYWHERE, 0.8), _folder),
    Goal(
        "stream of JPEGs ÷ backend", _SMALL, "≥", _on(_EVERYWHERE, 0.8), _calls(lambda calls: calls.stream_efficiency)
    ),
    Goal(
        f"{_CALLERS} callers ÷ stream",
        _SMALL,
        "≥",
        _on(_EVERYWHERE, 0.9),
        _calls(lambda calls: calls.callers_to_stream),
    ),
    Goal("99th percentile of a call ÷ median", _SMALL, "≤", _on(_EVERYWHERE, 3.0), _calls(lambda calls: calls.tail)),
    Goal("cold start in seconds", _SMALL, "≤", _on(_EVERYWHERE, 1.0), _cold_start),
)
"""The goals of single models. The limit on the import time is below."""

IMPORT_LIMIT_SECONDS = 0.2
