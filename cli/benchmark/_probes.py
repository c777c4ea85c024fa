"""Measurements that need a fresh process: the import, the cold start, the peak of memory."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from typing import Any

from bcos_sdk._processes import last_lines, python_command
from bcos_sdk.cli.benchmark._report import ImportRecord
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
_PEAK = """
from bcos_sdk.cli.benchmark import _probe_programs
name, arguments = json.loads(sys.argv[1])
getattr(_probe_programs, name)(*arguments)
"""


def measure_import() -> ImportRecord:
    """`import bcos_sdk` where files were read before, as in daily use."""
    _ask(_IMPORT)
    figures, _seconds = _ask(_IMPORT)
    return ImportRecord.model_validate(figures)


def cold_start_seconds(path: str, device: str, threads: int) -> float:
    """From the start of Python to the first explanation of a client."""
    _figures, seconds = _ask(_FIRST_RESULT, [path, device, threads])
    return seconds


def our_peak_memory(path: str, device: str, threads: int, batch: int) -> float:
    """Megabytes that explaining one batch takes at most."""
    return _peak("peak_of_ours", path, device, threads, batch)


def reference_peak_memory(name: str, size: tuple[int, int], threads: int, batch: int) -> float:
    """Megabytes that the reference takes for the same."""
    return _peak("peak_of_reference", name, size, threads, batch)


def _peak(program: str, *arguments: Any) -> float:
    figures, _seconds = _ask(_PEAK, [program, arguments])
    return float(figures["peak_memory_mb"])


def _ask(program: str, arguments: Any = None) -> tuple[dict[str, Any], float]:
    """What a program answers, and after how many seconds."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        began = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - this very Python, and a program of ours
            python_command(program, json.dumps(arguments)), stdout=subprocess.PIPE, stderr=words, text=True
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
            words.seek(0)
            quoted = last_lines(words.read()) or f"it ended with code {process.returncode}"
            raise InferenceError(f"a process that was to be measured failed: {quoted}")
    figures: dict[str, Any] = json.loads(answer)
    return figures, seconds
