"""Two TensorRTs: `tensorrt` builds on the GPU at hand, `tensorrt_rtx` on any machine for named compute capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Literal

from bcos_sdk._extras import require
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends.tensorrt._process import run_worker
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InputError

__all__ = [
    "CAPABILITIES",
    "FLAVOURS",
    "Flavour",
    "choose_flavour",
    "flavour_problem",
    "installed_flavours",
    "version_of",
]

Flavour = Literal["tensorrt", "tensorrt_rtx"]
FLAVOURS: tuple[Flavour, ...] = ("tensorrt", "tensorrt_rtx")
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""What TensorRT for RTX 1.7 builds for."""
HALF_ONLY = ("7.5",)


def choose_flavour(capabilities: Sequence[str], precision: GraphPrecision) -> Flavour:
    """The flavour that can build what was asked for, or an error that says both ways on."""
    for capability in capabilities:
        if capability not in CAPABILITIES:
            raise InputError(
                f"{capability or 'an empty string'} is no compute capability that engines can be built for",
                source=capability,
                hint=f"Choose from {', '.join(CAPABILITIES)}.",
            )
        if precision == "fp32" and capability in HALF_ONLY:
            raise InputError(
                f"engines for compute capability {capability} cannot multiply in full precision",
                source=capability,
                hint="Export with --precision fp16 (precision='fp16').",
            )
    if capabilities:
        require("tensorrt_rtx", purpose="Building engines ahead of time")
        return "tensorrt_rtx"
    driver = probe_driver()
    if driver.problem is not None:
        raise DeviceUnavailableError(
            f"engines are built on the GPU that runs them, but {driver.problem}",
            hint="Run this on the machine with the GPU (pip install 'bcos-sdk[trt]'), or build ahead of time for it: "
            "--compute-capability 8.9 (pip install 'bcos-sdk[trt-rtx]').",
        )
    require("tensorrt", purpose="Building engines")
    return "tensorrt"


def installed_flavours() -> list[Flavour]:
    """Those that can be imported; the one that tunes for the very GPU at hand comes first."""
    return [flavour for flavour in FLAVOURS if find_spec(flavour) is not None]


@cache
def version_of(flavour: Flavour) -> str:
    """The version of the library itself, which may differ from what pip knows."""
    return str(run_worker({"task": "version", "flavour": flavour})["version"])


@cache
def flavour_problem(flavour: Flavour, gpu: int) -> str | None:
    """Why a flavour cannot run on that GPU, found out in a process of its own; None if it can."""
    driver = probe_driver()
    if gpu >= len(driver.gpus):
        return driver.problem or f"there is no GPU {gpu}"
    capability = driver.gpus[gpu].capability
    if flavour == "tensorrt_rtx" and capability not in CAPABILITIES:
        return f"TensorRT for RTX builds nothing for compute capability {capability}; pip install 'bcos-sdk[trt]'"
    try:
        run_worker({"task": "probe", "flavour": flavour, "gpu": gpu})
    except EngineError as error:
        return error.message
    return None
