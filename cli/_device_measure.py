"""Measure a model on one device: errors against its golden record, residuals, times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bcos_sdk.backends import Device
from bcos_sdk.bundle import Bundle
from bcos_sdk.images import stand_in

__all__ = ["BATCHES", "measure"]

_ROUNDS = 5
BATCHES = (1, 8)


def measure(device: Device, bundle: Bundle, *, tf32: bool, cuda_graphs: bool) -> dict[str, Any]:
    """Errors against the golden record, the largest residual, and the median time of calls."""
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
        for batch in BATCHES:
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
