"""The report as tables of text, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

from bcos_sdk.cli.benchmark._goals import GOALS, IMPORT_LIMIT_SECONDS
from bcos_sdk.cli.benchmark._measurements import ONNX_RUNTIME, ModelRecord, Report, Side, Timing, What

__all__ = [
    "Table",
    "calls_table",
    "describe_timing",
    "goal_table",
    "machine_rows",
    "model_title",
    "process_table",
    "ratio_table",
    "three_digits",
    "timing_table",
]

Table = tuple[list[str], list[list[str]]]

_NONE = "–"
_OURS = {
    "forward": "predict",
    "explain": "explain",
    "explain top 5": "explain, five classes",
    "explain with picture": "client, explain with picture",
    "client explain": "client, explain",
}
_THEIRS = {
    "forward": "reference forward",
    "explain": "reference explain in batch",
    "explain with picture": "reference explain() with picture",
}


def describe_timing(timing: Timing) -> str:
    """Return implementation, task and device as text, for example "explain, cpu"."""
    if timing.side == "conventional":
        where = "ONNX Runtime" if timing.device == ONNX_RUNTIME else timing.device
        return f"conventional forward, {where}"
    if timing.side in ("torch", "compiled"):
        how = "torch.compile" if timing.side == "compiled" else "eager"
        return f"{timing.what}, our network in {timing.device}, {how}"
    if timing.side == "reference":
        return f"{_THEIRS[timing.what]}, {timing.device}"
    return f"{_OURS[timing.what]}, {timing.device}"


def model_title(model: ModelRecord) -> str:
    height, width = model.input_size
    exported = "" if model.export_seconds is None else f", exported in {model.export_seconds:.1f} s"
    return f"{model.name}, {height}×{width}, {model.precision}{exported}"


def timing_table(model: ModelRecord) -> Table:
    """One row per case and batch size."""
    header = ["what", "batch", "ms/image", "least ms", "images/s", "÷ conventional", "reference ÷ ours"]
    rows = [
        [
            describe_timing(timing),
            str(timing.batch),
            three_digits(timing.median_ms),
            three_digits(timing.least_ms),
            three_digits(timing.images_per_second),
            _ratio(model.to_conventional(timing)),
            _ratio(model.reference_to(timing)),
        ]
        for timing in sorted(model.timings, key=lambda timing: timing.batch)
    ]
    return header, rows


def ratio_table(model: ModelRecord) -> Table:
    """One row per device and batch size: ratios of times on the same device."""
    header = ["device", "batch", "predict ÷ conventional, same device", "explain ÷ conventional, same device"]
    header += ["explain ÷ predict", "client ÷ backend", "five classes ÷ one"]
    rows = []
    for device in model.devices:
        for batch in sorted({timing.batch for timing in model.timings}):
            forward, explain = _at("ours", "forward", device), _at("ours", "explain", device)
            conventional = _at("conventional", "forward", device)
            quotients = [
                (forward, conventional),
                (explain, conventional),
                (explain, forward),
                (_at("ours", "client explain", device), explain),
                (_at("ours", "explain top 5", device), explain),
            ]
            rows.append([device, str(batch), *(_ratio(model.ratio(*both, batch)) for both in quotients)])
    return header, rows


def _at(side: Side, what: What, device: str) -> tuple[Side, What, str]:
    return side, what, device


def process_table(model: ModelRecord) -> Table:
    """One row per device: the measurements in new processes."""
    header = [
        "device",
        "cold start s",
        "peak MB",
        "÷ reference",
        "folder images/s",
        "÷ backend",
        "÷ backend without start",
    ]
    rows = []
    for device, record in model.devices.items():
        folder = record.folder
        rows.append(
            [
                device,
                f"{record.cold_start_seconds:.2f}",
                f"{record.peak_memory_mb:.0f}",
                _ratio(model.memory_to_reference(device)),
                three_digits(folder.images_per_second) if folder else _NONE,
                _ratio(folder.efficiency if folder else None),
                _ratio(folder.efficiency_without_start if folder else None),
            ]
        )
    if model.reference_peak_memory_mb is not None:
        rows.append(["reference, torch", _NONE, f"{model.reference_peak_memory_mb:.0f}", *[_NONE] * 4])
    return header, rows


def calls_table(model: ModelRecord) -> Table:
    """One row per device: JPEGs in memory through a client."""
    header = ["device", "backend images/s", "stream images/s", "÷ backend"]
    header += ["callers", "their images/s", "÷ stream", "ms per call", "p99 ÷ median"]
    rows = [
        [
            device,
            three_digits(calls.bare_images_per_second),
            three_digits(calls.stream_images_per_second),
            _ratio(calls.stream_efficiency),
            str(calls.callers),
            three_digits(calls.callers_images_per_second),
            _ratio(calls.callers_to_stream),
            three_digits(calls.median_ms),
            _ratio(calls.tail),
        ]
        for device, record in model.devices.items()
        if (calls := record.calls)
    ]
    return header, rows


def goal_table(report: Report, *, measured_only: bool = False) -> Table:
    """One row per goal: its limit, and for each device the figure and "met" or "missed"."""
    header = ["goal", "model", "limit", *(f"measured, {device}" for device in report.devices)]
    rows = []
    for goal in GOALS:
        cells = []
        for device in report.devices:
            value = goal.measured(report, device)
            cells.append(_NONE if value is None else _judged(f"{value:.2f}", goal.is_met(value, device)))
        if measured_only and set(cells) == {_NONE}:
            continue
        rows.append([goal.text, goal.model, goal.describe_limits(), *cells])
    imported = report.imported
    met = imported.seconds <= IMPORT_LIMIT_SECONDS and not imported.imports_torch
    text = f"{imported.seconds:.2f} s, {'with' if imported.imports_torch else 'without'} torch"
    limit = f"≤ {IMPORT_LIMIT_SECONDS:g} s, without torch"
    rows.append(["`import bcos_sdk`", _NONE, limit, *[_judged(text, met)] * len(report.devices)])
    return header, rows


def machine_rows(report: Report) -> list[tuple[str, str]]:
    machine = report.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    doubt = ": the machine was busy, the ratios are unreliable" if machine.is_busy else ""
    load = [] if machine.load is None else [("load before", f"{machine.load:.1f}{doubt}")]
    return [
        ("processor", f"{machine.cpu}, {machine.cores} cores"),
        *load,
        ("threads", str(report.threads)),
        ("system", f"{machine.system}, Python {machine.python}"),
        ("packages", packages),
        ("rounds", f"{report.rounds}, after one warm-up round"),
    ]


def _judged(text: str, met: bool | None) -> str:
    return text if met is None else f"{text}, {'met' if met else 'missed'}"


def three_digits(value: float) -> str:
    """Format with about three significant digits. Further digits differ between runs."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _ratio(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"
