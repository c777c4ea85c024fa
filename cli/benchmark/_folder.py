"""Throughput of the whole command: a folder of JPEGs through `bcos-sdk predict`, compared with the backend alone."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from bcos_sdk._processes import python_command
from bcos_sdk.cli.benchmark._measurements import FolderRecord
from bcos_sdk.errors import InferenceError

__all__ = ["jpegs", "measure_folder"]

_COMMAND = "from bcos_sdk.cli import main\nmain()\n"
_BARE_RUNS = 5
_NOISE = 14  # standard deviation; with it, a JPEG of 500×375 pixels has 84 kB, like a photograph


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
    """Time `bcos-sdk predict FOLDER --explain --out OUT`, and before and after it `bare`: the backend on one batch."""
    folder = workspace / "jpegs"
    if not folder.exists():
        folder.mkdir()
        for number, picture in enumerate(jpegs(images, picture_size)):
            (folder / f"{number:05}.jpg").write_bytes(picture)
    options = ["--model", bundle, "--device", device, "--threads", threads, "--max-batch", batch]
    out = workspace / f"results-{device.replace(':', '-')}"
    command = python_command(_COMMAND, "predict", str(folder), "--explain", "--out", str(out), *map(str, options))
    before = _times(bare)
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    seconds = time.perf_counter() - began
    after = _times(bare)
    if done.returncode:
        raise InferenceError(f"bcos-sdk predict failed with exit code {done.returncode}: {done.stderr.strip()}")
    return FolderRecord(
        images=images,
        batch=batch,
        seconds=seconds,
        cold_start_seconds=cold_start_seconds,
        bare_images_per_second=batch / statistics.median([*before, *after]),
    )


def _times(run: Callable[[], object]) -> list[float]:
    run()  # warm-up
    times = []
    for _ in range(_BARE_RUNS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return times


def jpegs(count: int, size: tuple[int, int]) -> Iterator[bytes]:
    """Yield `count` different smooth pictures with noise, of that height and width, as JPEG files."""
    generator = np.random.default_rng(0)
    for _ in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize(size[::-1], Image.Resampling.BICUBIC))
        noisy = smooth + generator.normal(0, _NOISE, smooth.shape)
        file = BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        yield file.getvalue()
