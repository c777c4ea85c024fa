"""The report of `bcos-sdk doctor --report`: errors and timings of models on every device, as a table to send back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bcos_sdk.backends import Device, list_devices
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._common import columns
from bcos_sdk.cli._device_measure import BATCHES
from bcos_sdk.cli._device_process import measure_device, unusable

__all__ = ["measured_rows", "report_table"]

_USUAL = {"tf32": False, "cuda_graphs": False}


def measured_rows(bundles: Sequence[Bundle]) -> Iterator[dict[str, Any]]:
    """One row per device, model and, on a GPU, use of TF32 and of CUDA graphs; one for a device that is unusable.

    Each is measured in a process of its own. If that fails in any way, its row says how.
    """
    for device in list_devices():
        if (problem := unusable(device)) is not None:
            yield {"device": str(device), "model": None, **_USUAL, "problem": problem}
            continue
        for bundle in bundles:
            for options in _options(device, bundle):
                model = bundle.manifest.model.name
                yield {"device": str(device), "model": model, **options, **measure_device(device, bundle, **options)}


def _options(device: Device, bundle: Bundle) -> list[dict[str, bool]]:
    further = [{**_USUAL, "cuda_graphs": True}] if device.runtime.captures_graphs else []
    if device.runtime.on_gpu and bundle.manifest.precision == "fp32":
        further.append({**_USUAL, "tf32": True})
    return [_USUAL, *further]


def report_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows as a table; below it, why others have no figures."""
    header = ["device", "precision", "model", "start s", "residual", "W(x) error"]
    header += [f"{what} {batch} ms" for batch in BATCHES for what in ("predict", "explain")]
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
        for row in rows
        if row["problem"] is None
    ]
    failed = [f"{_case(row)}: {row['problem']}" for row in rows if row["problem"] is not None]
    return [*columns(header, cells), *failed]


def _case(row: dict[str, Any]) -> str:
    options = [name for name, used in (("TF32", row["tf32"]), ("CUDA graphs", row["cuda_graphs"])) if used]
    model = f", {row['model']}" if row["model"] else ""
    return f"{row['device']}{model}" + (f" with {' and '.join(options)}" if options else "")
