"""Measure how time and memory of an explanation grow, and write docs/growth.json: `python docs/measure_growth.py`.

It exports ResNet-18 with random weights at several input sizes, which takes minutes. Then run `make_growth.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bcos_sdk._processes import peak_memory
from bcos_sdk.backends import open_backend
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.cli.benchmark import describe_machine, round_order, sample_images, top_targets

DOCS = Path(__file__).resolve().parent
DATA = DOCS / "growth.json"
_MODEL, _SIDE, _THREADS = "resnet18", 224, 2
_COUNTS = (1, 2, 4, 8, 16, 32)
_DEVICES = ("openvino", "cpu")
_ROUNDS = 7
SWEEPS: dict[str, tuple[int, ...]] = {
    "images": _COUNTS,
    "targets": _COUNTS,
    "side": (128, 224, 320, 448, 672, 896),
    "threads": (1, 2),
}
"""What grows, and its values. Everything else stays at one image or target, 224 pixels and two threads."""

Point = dict[str, Any]


def points() -> list[Point]:
    """Every point of every sweep on every device. With two threads, eight images keep both busy."""
    usual = {"images": 1, "targets": 1, "side": _SIDE, "threads": _THREADS}
    return [
        {"sweep": sweep, "device": device, **usual, **({"images": 8} if sweep == "threads" else {}), sweep: value}
        for sweep, values in SWEEPS.items()
        for device in _DEVICES
        for value in values
    ]


def measure(folder: Path) -> dict[str, Any]:
    """The median time of each point in interleaved rounds, and its peak memory in a process of its own."""
    measured = points()
    bundles = {side: _bundle(folder, side) for side in SWEEPS["side"]}
    backends: dict[tuple[str, int, int], Any] = {}
    for point in measured:
        key = (point["device"], point["side"], point["threads"])
        if key not in backends:
            backends[key] = open_backend(bundles[point["side"]], point["device"], threads=point["threads"])
    seconds: list[list[float]] = [[] for _ in measured]
    for number in range(_ROUNDS + 1):
        for place in round_order(len(measured), number):
            point = measured[place]
            backend = backends[point["device"], point["side"], point["threads"]]
            _explain(backend, point)  # so that no time is spent on what the point before left in caches and threads
            took = _explain(backend, point)
            if number:  # in the first round graphs are compiled
                seconds[place].append(took)
        sys.stderr.write(f"round {number} of {_ROUNDS}\n")
    for point, times in zip(measured, seconds, strict=True):
        point["seconds"] = statistics.median(times)
        point["peak_mb"] = _peak_of(bundles[point["side"]].path, point)
    machine = describe_machine()
    return {"model": _MODEL, "cpu": machine.cpu, "cores": machine.cores, "rounds": _ROUNDS, "points": measured}


def _explain(backend: Any, point: Point) -> float:
    images = sample_images(point["images"], (point["side"], point["side"]))
    targets = top_targets(point["images"], point["targets"])
    began = time.perf_counter()
    backend.explain(images, targets, weights=False)
    return time.perf_counter() - began


def _bundle(folder: Path, side: int) -> Bundle:
    path = folder / f"{_MODEL}-{side}"
    if not (path / "manifest.json").exists():
        most = max(_COUNTS) if side == _SIDE else 1
        size = [] if side == _SIDE else ["--input-size", str(side)]
        command = ["export", _MODEL, "--random-weights", *size, "--max-batch", str(most), "--force", "-o", str(path)]
        _run("-c", "from bcos_sdk.cli import main\nmain()", *command)
    return open_bundle(path)


def _peak_of(bundle: Path, point: Point) -> float:
    return float(_run(__file__, "--peak-of", str(bundle), "--point", json.dumps(point)))


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


def _print_peak(bundle: Path, point: Point) -> None:
    backend = open_backend(open_bundle(bundle), point["device"], threads=point["threads"])
    for _ in range(2):
        _explain(backend, point)
    sys.stdout.write(str((peak_memory() or 0) / 1e6))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=Path, default=DOCS.parent / "build" / "growth", help="Folder of the exports.")
    parser.add_argument("--peak-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        _print_peak(options.peak_of, options.point)
    else:
        DATA.write_text(json.dumps(measure(options.bundles), indent=1) + "\n", "utf-8")
