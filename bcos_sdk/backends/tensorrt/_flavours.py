"""The two flavours of TensorRT, and which of them can build or run.

`tensorrt` builds on the GPU that runs the engine. `tensorrt_rtx` builds on any machine for given compute capabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Literal

from bcos_sdk._extras import require
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends.tensorrt._worker import run_worker
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InputError

__all__ = [
    "CAPABILITIES",
    "Flavour",
    "choose_flavour",
    "flavour_problem",
    "flavour_version",
    "installed_flavours",
]

Flavour = Literal["tensorrt", "tensorrt_rtx"]
_FLAVOURS: tuple[Flavour, ...] = ("tensorrt", "tensorrt_rtx")
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""The compute capabilities that TensorRT for RTX 1.7 builds engines for."""
_FP16_ONLY = ("7.5",)


def choose_flavour(capabilities: Sequence[str], precision: GraphPrecision) -> Flavour:
    """Return the flavour that builds the engines: ahead of time for `capabilities`, or without any, for GPU 0 here."""
    for capability in capabilities:
        if capability not in CAPABILITIES:
            raise InputError(
                f"engines cannot be built for compute capability {capability!r}",
                source=capability,
                hint=f"Choose from {', '.join(CAPABILITIES)}.",
            )
        if precision == "fp32" and capability in _FP16_ONLY:
            raise InputError(
                f"engines for compute capability {capability} cannot multiply in float32",
                source=capability,
                hint="Export with --precision fp16 (precision='fp16').",
            )
    if capabilities:
        require("tensorrt_rtx", purpose="Building engines ahead of time")
        return "tensorrt_rtx"
    driver = probe_driver()
    if driver.problem is not None:
        raise DeviceUnavailableError(
            f"an engine is built on the GPU that runs it, but {driver.problem}",
            hint="Run this on the machine with the GPU (pip install 'bcos-sdk[trt]'), or build ahead of time: "
            "--compute-capability 8.9 (pip install 'bcos-sdk[trt-rtx]').",
        )
    require("tensorrt", purpose="Building engines")
    return "tensorrt"


def installed_flavours() -> list[Flavour]:
    """The installed flavours. `tensorrt` comes first, because it tunes engines for the exact GPU."""
    return [flavour for flavour in _FLAVOURS if find_spec(flavour) is not None]


@cache
def flavour_version(flavour: Flavour) -> str:
    """The version that the library itself reports. It may differ from the version that pip reports."""
    return str(run_worker({"task": "version", "flavour": flavour})["version"])


@cache
def flavour_problem(flavour: Flavour, gpu: int) -> str | None:
    """Return why a flavour cannot run on the GPU, tried in a child process; None if it can."""
    driver = probe_driver()
    if gpu >= len(driver.gpus):
        return driver.problem or f"there is no GPU {gpu}"
    capability = driver.gpus[gpu].capability
    if flavour == "tensorrt_rtx" and capability not in CAPABILITIES:
        return f"TensorRT for RTX does not support compute capability {capability}; pip install 'bcos-sdk[trt]'"
    try:
        run_worker({"task": "probe", "flavour": flavour, "gpu": gpu})
    except EngineError as error:
        return error.message
    return None
