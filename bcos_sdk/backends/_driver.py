"""Is there an NVIDIA driver that works? Asked in a process of its own.

`cuInit` in the caller's process would spoil CUDA for its later forks, and a broken driver could end it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

__all__ = ["Driver", "ask_driver", "probe_driver"]

_SECONDS = 60
_PROGRAM = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
except OSError:
    sys.exit("no NVIDIA driver is installed")
count = ctypes.c_int(0)
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
if status:
    sys.exit(f"the NVIDIA driver answers with CUDA error {status}")
print(count.value)
"""


@dataclass(frozen=True)
class Driver:
    """How many GPUs the driver offers, or why none."""

    gpus: int
    problem: str | None = None


@cache
def probe_driver() -> Driver:
    """The driver of this machine; asked once."""
    return ask_driver([sys.executable, "-I", "-c", _PROGRAM])


def ask_driver(command: Sequence[str]) -> Driver:
    """Run a program that prints the number of GPUs, or ends with the reason why there are none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return Driver(0, f"the NVIDIA driver does not answer within {_SECONDS} s")
    except OSError as error:
        return Driver(0, f"the NVIDIA driver could not be asked: {error}")
    if done.returncode < 0:
        return Driver(0, f"the NVIDIA driver crashed with signal {-done.returncode}")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return Driver(0, lines[-1] if lines else "the NVIDIA driver could not be asked")
    lines = done.stdout.split()
    if not lines or not lines[-1].isdecimal():
        return Driver(0, "the NVIDIA driver could not be asked")
    gpus = int(lines[-1])
    return Driver(gpus, None if gpus else "the NVIDIA driver sees no GPU")
