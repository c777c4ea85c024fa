"""A report with round figures, so that every ratio is easy to compute by hand."""

from __future__ import annotations

from bcos_sdk.cli.benchmark import (
    CallsRecord,
    DeviceRecord,
    FolderRecord,
    ImportRecord,
    Machine,
    ModelRecord,
    Report,
    Side,
    Timing,
    What,
)

TIMES: list[tuple[Side, What, str, int, float]] = [
    ("ours", "forward", "cpu", 1, 13.0),
    ("ours", "explain", "cpu", 1, 25.0),
    ("ours", "client explain", "cpu", 1, 26.0),
    ("ours", "explain with picture", "cpu", 1, 40.0),
    ("ours", "explain top 5", "cpu", 1, 100.0),
    ("conventional", "forward", "cpu", 1, 10.0),
    ("conventional", "forward", "openvino", 1, 5.0),
    ("reference", "forward", "torch", 1, 26.0),
    ("reference", "explain", "torch", 1, 50.0),
    ("reference", "explain with picture", "torch", 1, 60.0),
    ("ours", "forward", "cpu", 8, 9.0),
    ("ours", "explain", "cpu", 8, 20.0),
    ("ours", "client explain", "cpu", 8, 21.0),
    ("ours", "explain", "openvino", 8, 10.0),
    ("conventional", "forward", "cpu", 8, 8.0),
    ("reference", "explain", "torch", 8, 28.0),
]


CALLS = CallsRecord(
    images=64,
    callers=32,
    bare_images_per_second=100.0,
    stream_images_per_second=80.0,
    callers_images_per_second=72.0,
    median_ms=400.0,
    p99_ms=1000.0,
)


def model_record(name: str = "resnet50", **changed: object) -> ModelRecord:
    timings = [
        Timing(side=side, what=what, device=device, batch=batch, median_ms=ms, least_ms=ms / 2)
        for side, what, device, batch, ms in TIMES
    ]
    folder = FolderRecord(images=100, batch=8, seconds=5.0, cold_start_seconds=1.0, bare_images_per_second=25.0)
    fields: dict[str, object] = {
        "name": name,
        "architecture": name,
        "input_size": (224, 224),
        "precision": "fp32",
        "export_seconds": 12.34,
        "timings": tuple(timings),
        "devices": {"cpu": DeviceRecord(cold_start_seconds=1.0, peak_memory_mb=300.0, folder=folder, calls=CALLS)},
        "reference_peak_memory_mb": 600.0,
    }
    return ModelRecord.model_validate(fields | changed)


def sample_report(*models: ModelRecord) -> Report:
    return Report(
        machine=Machine(cpu="A processor", cores=2, system="Linux", python="3.11", packages={"torch": "2.13.0"}),
        threads=2,
        rounds=10,
        batches=(1, 8),
        devices=("cpu", "openvino"),
        against=("reference", "conventional"),
        imported=ImportRecord(seconds=0.25, imports_torch=False),
        models=models or (model_record(),),
    )
