"""The whole way: a folder of JPEGs through the command line, against the engine with nothing around it."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bcos_sdk._processes import python_command
from bcos_sdk.cli.benchmark._report import FolderRecord
from bcos_sdk.cli.benchmark._samples import write_jpegs
from bcos_sdk.errors import InferenceError

__all__ = ["measure_folder"]

_COMMAND = "from bcos_sdk.cli import main\nmain()\n"
_BARE_RUNS = 5


def measure_folder(
    bundle: Path,
    device: str,
    *,
    threads: int,
    batch: int,
    images: int,
    picture_size: tuple[int, int],
    cold_start_seconds: float,
    bare: Callable[[], object],
    workspace: Path,
) -> FolderRecord:
    """`bcos-sdk predict FOLDER --explain --out OUT`, between two measurements of `bare` on a batch of ready arrays."""
    folder = workspace / "jpegs"
    if not folder.exists():
        write_jpegs(folder, images, picture_size)
    options = ["--model", bundle, "--device", device, "--threads", threads, "--max-batch", batch]
    out = workspace / f"results-{device.replace(':', '-')}"
    command = python_command(_COMMAND, "predict", str(folder), "--explain", "--out", str(out), *map(str, options))
    before = _times(bare)
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    seconds = time.perf_counter() - began
    after = _times(bare)
    if done.returncode:
        raise InferenceError(f"bcos-sdk predict ended with code {done.returncode}: {done.stderr.strip()}")
    return FolderRecord(
        images=images,
        batch=batch,
        seconds=seconds,
        cold_start_seconds=cold_start_seconds,
        bare_images_per_second=batch / statistics.median([*before, *after]),
    )


def _times(run: Callable[[], object]) -> list[float]:
    run()
    times = []
    for _ in range(_BARE_RUNS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return times
