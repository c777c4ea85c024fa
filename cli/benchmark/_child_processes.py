"""Measurements that need a new process: import time, cold start, peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from typing import Any

from bcos_sdk._processes import last_lines, peak_memory, python_command
from bcos_sdk.cli.benchmark._measurements import ImportRecord
from bcos_sdk.errors import InferenceError

__all__ = ["cold_start_seconds", "measure_import", "our_peak_memory", "reference_peak_memory"]

_IMPORT = """
import time
began = time.perf_counter()
import bcos_sdk
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "imports_torch": "torch" in sys.modules}))
"""
_FIRST_RESULT = """
import numpy
from bcos_sdk import Client
path, device, threads = json.loads(sys.argv[1])
with Client(path, device=device, threads=threads) as client:
    shape = (*client.manifest.input.size, 3)
    client.explain(numpy.random.default_rng(0).integers(0, 256, shape, dtype=numpy.uint8))
    print("{}", flush=True)
"""
_PEAK_MEMORY = """
from bcos_sdk.cli.benchmark import _child_processes
name, arguments = json.loads(sys.argv[1])
getattr(_child_processes, name)(*arguments)
"""


def measure_import() -> ImportRecord:
    """Measure `import bcos_sdk` in a new process, with the files already in the disk cache."""
    _run_program(_IMPORT)
    figures, _seconds = _run_program(_IMPORT)
    return ImportRecord.model_validate(figures)


def cold_start_seconds(path: str, device: str, threads: int) -> float:
    """Return the seconds from the start of Python to the first explanation of a client."""
    _figures, seconds = _run_program(_FIRST_RESULT, [path, device, threads])
    return seconds


def our_peak_memory(path: str, device: str, threads: int, batch: int) -> float:
    """Return the peak memory in MB of a process that explains one batch with our backend."""
    return _peak_memory_of("_explain_with_backend", path, device, threads, batch)


def reference_peak_memory(name: str, size: tuple[int, int], threads: int, batch: int) -> float:
    """Return the peak memory in MB of a process that explains one batch with the reference package."""
    return _peak_memory_of("_explain_with_reference", name, size, threads, batch)


def _peak_memory_of(program: str, *arguments: Any) -> float:
    figures, _seconds = _run_program(_PEAK_MEMORY, [program, arguments])
    return float(figures["peak_memory_mb"])


def _explain_with_backend(path: str, device: str, threads: int, batch: int) -> None:
    """Explain a batch twice and print the peak memory of this process. Runs in the child process."""
    from bcos_sdk.backends import open_backend
    from bcos_sdk.bundle import open_bundle
    from bcos_sdk.cli.benchmark._subject import sample_images, top_targets

    bundle = open_bundle(path)
    backend = open_backend(bundle, device, threads=threads)
    images = sample_images(batch, bundle.manifest.input.size)
    for _ in range(2):
        backend.explain(images, top_targets(batch), weights=False)
    _print_peak_memory()


def _explain_with_reference(name: str, size: tuple[int, int], threads: int, batch: int) -> None:
    """The same with the reference package. Its weights are fresh: memory does not depend on them."""
    import torch

    from bcos_sdk.cli.benchmark._reference import build_reference, explain_in_batch
    from bcos_sdk.cli.benchmark._subject import sample_images

    torch.set_num_threads(threads)
    network = build_reference(name)
    images = torch.from_numpy(sample_images(batch, size))
    for _ in range(2):
        explain_in_batch(network, images)
    _print_peak_memory()


def _print_peak_memory() -> None:
    sys.stdout.write(json.dumps({"peak_memory_mb": (peak_memory() or 0) / 1e6}) + "\n")
    sys.stdout.flush()


def _run_program(program: str, arguments: Any = None) -> tuple[dict[str, Any], float]:
    """Run a program in a new process. Return the JSON line that it prints, and the seconds until it is printed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - this Python, with a program of this file
            python_command(program, json.dumps(arguments)), stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        with process:
            assert process.stdout is not None
            try:
                answer = process.stdout.readline()
                seconds = time.perf_counter() - began
            except BaseException:
                process.kill()
                raise
        if process.returncode or not answer:
            stderr.seek(0)
            reason = last_lines(stderr.read()) or f"exit code {process.returncode}"
            raise InferenceError(f"a child process of the benchmark failed: {reason}")
    figures: dict[str, Any] = json.loads(answer)
    return figures, seconds
