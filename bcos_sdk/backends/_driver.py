"""Find the NVIDIA driver and its GPUs, in a child process.

`cuInit` in this process would break CUDA in processes that are forked later, and a broken driver could crash it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = [
    "DRIVER_PROGRAM",
    "Driver",
    "Gpu",
    "ask_driver",
    "driver_is_known",
    "forget_driver",
    "gpu_problem",
    "may_have_gpu",
    "probe_driver",
    "remember_driver",
]

_SECONDS = 60
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvmap")
"""The files of the driver on Linux; under Windows (WSL 2); on Jetson."""
DRIVER_PROGRAM = """
import ctypes, json, re, sys

windows = sys.platform == "win32"
try:
    cuda = ctypes.CDLL("nvcuda.dll" if windows else "libcuda.so.1")
except OSError:
    sys.exit("no NVIDIA driver is installed")

def ask(function, *arguments):
    status = getattr(cuda, function)(*arguments)
    if status:
        sys.exit(f"the NVIDIA driver returned CUDA error {status}")

def number(function, *arguments):
    answer = ctypes.c_int(0)
    ask(function, ctypes.byref(answer), *arguments)
    return answer.value

ask("cuInit", 0)
gpus = []
for index in range(number("cuDeviceGetCount")):
    device = number("cuDeviceGet", index)
    name = ctypes.create_string_buffer(256)
    ask("cuDeviceGetName", name, len(name), device)
    major, minor = (number("cuDeviceGetAttribute", attribute, device) for attribute in (75, 76))
    gpus.append({"name": name.value.decode(errors="replace"), "capability": f"{major}.{minor}"})
level = number("cuDriverGetVersion")
version = ctypes.create_string_buffer(80)
try:
    nvml = ctypes.CDLL("nvml.dll" if windows else "libnvidia-ml.so.1")
    nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(version, len(version))
except (OSError, AttributeError):
    pass
if not version.value:
    try:
        with open("/proc/driver/nvidia/version", "rb") as file:
            version.value = re.search(rb"[0-9]+([.][0-9]+)+", file.read()).group()
    except (OSError, AttributeError):
        pass
cuda_version = f"{level // 1000}.{level % 1000 // 10}"
print(json.dumps({"gpus": gpus, "cuda": cuda_version, "version": version.value.decode() or "unknown"}))
"""
"""Prints the driver as JSON, or exits with the reason why there is none."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Answer):
    """A GPU: its name, and its compute capability, for example "8.9"."""

    name: str
    capability: str


class Driver(_Answer):
    """The driver: its GPUs, the newest CUDA version that it supports, and its own version. Or why there is none."""

    gpus: tuple[Gpu, ...] = ()
    cuda: str = "unknown"
    version: str = "unknown"
    problem: str | None = None


_found: list[Driver] = []
"""The driver, if another child process has asked for it already."""


@cache
def probe_driver() -> Driver:
    """Return the driver of this machine. The child process runs once per process."""
    return _found[0] if _found else ask_driver([sys.executable, "-I", "-c", DRIVER_PROGRAM])


def driver_is_known() -> bool:
    """Whether `probe_driver` needs no child process any more."""
    return bool(_found) or probe_driver.cache_info().currsize > 0


def remember_driver(driver: Driver) -> None:
    """Let `probe_driver` return this driver, which another child process has found."""
    _found[:] = [driver]
    probe_driver.cache_clear()


def forget_driver() -> None:
    """Let the next `probe_driver` ask again."""
    _found.clear()
    probe_driver.cache_clear()


def may_have_gpu() -> bool:
    """Whether this machine may have an NVIDIA GPU. Without its device files there is none, and no process is needed."""
    return sys.platform != "linux" or any(Path(file).exists() for file in _DEVICE_FILES)


def gpu_problem(index: int) -> str | None:
    """Return why the GPU of that index cannot be used; None if the driver has it."""
    driver = probe_driver()
    if driver.problem is None and index >= len(driver.gpus):
        return f"there are {len(driver.gpus)} GPUs, numbered from 0"
    return driver.problem


def ask_driver(command: Sequence[str]) -> Driver:
    """Run a program that prints the driver as JSON, or exits with the reason why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return Driver(problem=f"the NVIDIA driver did not respond within {_SECONDS} s")
    except OSError as error:
        return Driver(problem=f"the NVIDIA driver could not be queried: {error}")
    if done.returncode < 0:
        return Driver(problem=f"the NVIDIA driver crashed with signal {-done.returncode}")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return Driver(problem=lines[-1] if lines else "the NVIDIA driver could not be queried")
    lines = done.stdout.strip().splitlines()
    try:
        driver = Driver.model_validate_json(lines[-1] if lines else "")
    except ValidationError:
        return Driver(problem="the NVIDIA driver could not be queried")
    return driver if driver.gpus else Driver(problem="the NVIDIA driver reports no GPU")
