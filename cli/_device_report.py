"""The report of `bcos-sdk doctor --report`: errors and timings of a model on every device, as a table to send back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bcos_sdk.backends import Device, list_devices
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._common import columns
from bcos_sdk.errors import BcosError
from bcos_sdk.images import stand_in

__all__ = ["measure_devices", "report_table"]

_ROUNDS = 5
_BATCHES = (1, 8)


def measure_devices(bundles: Sequence[Bundle]) -> list[dict[str, Any]]:
    """One row per device, model and, on a GPU, use of TF32 and of CUDA graphs."""
    cases = [(device, bundle) for bundle in bundles for device in list_devices()]
    return [measure(device, bundle, **options) for device, bundle in cases for options in _options(device, bundle)]


def _options(device: Device, bundle: Bundle) -> list[dict[str, bool]]:
    usual = {"tf32": False, "cuda_graphs": False}
    further = [{**usual, "cuda_graphs": True}] if device.runtime.captures_graphs else []
    if device.runtime.on_gpu and bundle.manifest.precision == "fp32":
        further.append({**usual, "tf32": True})
    return [usual, *further]


def measure(device: Device, bundle: Bundle, *, tf32: bool, cuda_graphs: bool) -> dict[str, Any]:
    """Errors against the golden record, the largest residual, and the median time of calls; or why there are none."""
    options = {"tf32": tf32, "cuda_graphs": cuda_graphs}
    row: dict[str, Any] = {"device": str(device), "model": bundle.manifest.model.name, **options, "problem": None}
    try:
        return {**row, **_figures(device, bundle, **options)}
    except BcosError as error:
        return {**row, "problem": error.message}


def _figures(device: Device, bundle: Bundle, *, tf32: bool, cuda_graphs: bool) -> dict[str, Any]:
    from bcos_sdk.client import Client, target_at

    golden = bundle.golden()
    image = stand_in(golden.pixels, bundle.manifest.input)
    began = time.perf_counter()
    with Client(bundle.path, device=str(device), tf32=tf32, cuda_graphs=cuda_graphs) as client:
        client.warmup()
        started = time.perf_counter() - began
        (first,) = client.explain(image, targets=target_at(bundle.manifest, golden.target), weights=True)
        explanation = first.explanations[0]
        residual, times = 0.0, {}
        for batch in _BATCHES:
            images = [np.roll(image, shift, axis=-1) for shift in range(batch)]
            times[f"predict {batch}"] = _milliseconds(lambda images=images: client.predict(images))  # type: ignore[misc]
            times[f"explain {batch}"] = _milliseconds(lambda images=images: client.explain(images))  # type: ignore[misc]
            found = [one.completeness for result in client.explain(images, top_k=3) for one in result.explanations]
            residual = max(residual, *(abs(one.relative_residual) for one in found))
        return {
            "device_used": client.device,
            "precision": explanation.completeness.precision,
            "tolerance": explanation.completeness.tolerance,
            "residual": residual,
            "weights_error": _relative(explanation.weights, golden.weights),
            "start_seconds": round(started, 3),
            "milliseconds": times,
        }


def _milliseconds(call: Callable[[], object]) -> float:
    """The median of some calls, after one that is not counted."""
    call()
    took = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - began))
    return round(statistics.median(took), 3)


def _relative(value: Any, truth: Any) -> float:
    return float(np.linalg.norm(np.asarray(value, np.float64) - truth) / np.linalg.norm(truth))


def report_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows as a table; below it, why devices have no figures."""
    header = ["device", "precision", "model", "start s", "residual", "W(x) error"]
    header += [f"{what} {batch} ms" for batch in _BATCHES for what in ("predict", "explain")]
    ran = [row for row in rows if row["problem"] is None]
    cells = [
        [
            row["device"] + (" graphs" if row["cuda_graphs"] else ""),
            row["precision"],
            str(row["model"]),
            f"{row['start_seconds']:.1f}",
            f"{row['residual']:.1e}",
            f"{row['weights_error']:.1e}",
            *(f"{took:.2f}" for took in row["milliseconds"].values()),
        ]
        for row in ran
    ]
    failed = {row["device"]: row["problem"] for row in rows if row["problem"] is not None}
    return [*columns(header, cells), *(f"{device}: {problem}" for device, problem in failed.items())]
