"""The two flavours of TensorRT, and which of them can build or run.

`tensorrt` builds on the GPU that runs the engine. `tensorrt_rtx` builds on any machine for given compute capabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Literal

from bcos_sdk._extras import require
from bcos_sdk.backends._driver import driver_is_known, may_have_gpu, probe_driver, remember_driver
from bcos_sdk.backends.tensorrt._look import look
from bcos_sdk.backends.tensorrt._worker import run_worker
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InputError

__all__ = [
    "CAPABILITIES",
    "HALF_ONLY",
    "Flavour",
    "choose_flavour",
    "flavour_problem",
    "flavour_version",
    "flavours_for",
    "forget_flavours",
    "installed_flavours",
    "look_at_gpu",
]

Flavour = Literal["tensorrt", "tensorrt_rtx"]
_FLAVOURS: tuple[Flavour, ...] = ("tensorrt", "tensorrt_rtx")
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""The compute capabilities that TensorRT for RTX 1.7 builds engines for."""
PROBED_VERSIONS: dict[str, str] = {}
"""The versions that the child process reported which tried a GPU, so that no second one is started for them."""
_TRIED: dict[tuple[str, int], str | None] = {}
"""For each flavour and GPU that `look_at_gpu` has tried, the problem."""
HALF_ONLY = ("7.5",)
"""Those of them for which it has no float32 matrix product."""


def choose_flavour(capabilities: Sequence[str], precision: GraphPrecision) -> Flavour:
    """Return the flavour that builds the engines: ahead of time for `capabilities`, or without any, for GPU 0 here."""
    for capability in capabilities:
        if capability not in CAPABILITIES:
            raise InputError(
                f"engines cannot be built for compute capability {capability!r}",
                source=capability,
                hint=f"Choose from {', '.join(CAPABILITIES)}.",
            )
        if precision == "fp32" and capability in HALF_ONLY:
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
    usable = flavours_for(driver.gpus[0].capability, precision, installed_flavours())
    if not usable:
        require("tensorrt", purpose="Building engines for this GPU")
    return usable[0]


def flavours_for(capability: str, precision: GraphPrecision, flavours: Sequence[Flavour]) -> list[Flavour]:
    """Those of the flavours that have kernels of this precision for GPUs of this compute capability."""
    by_rtx = capability in CAPABILITIES and not (precision == "fp32" and capability in HALF_ONLY)
    return [flavour for flavour in flavours if flavour == "tensorrt" or by_rtx]


def installed_flavours() -> list[Flavour]:
    """The installed flavours. `tensorrt` comes first, because it tunes engines for the exact GPU."""
    return [flavour for flavour in _FLAVOURS if find_spec(flavour) is not None]


@cache
def flavour_version(flavour: Flavour) -> str:
    """The version that the library itself reports. It may differ from the version that pip reports."""
    if flavour in PROBED_VERSIONS:
        return PROBED_VERSIONS[flavour]
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
    if (flavour, gpu) in _TRIED:
        return _TRIED[flavour, gpu]
    try:
        reply = run_worker({"task": "probe", "flavour": flavour, "gpu": gpu})
    except EngineError as error:
        return error.message
    PROBED_VERSIONS[flavour] = str(reply["version"])
    return None


def look_at_gpu(gpu: int) -> None:
    """Ask the driver and try the installed flavours in one child process, unless the driver is known already."""
    if driver_is_known() or not may_have_gpu():
        return
    driver, tried = look(gpu, installed_flavours())
    remember_driver(driver)
    for flavour, outcome in tried.items():
        _TRIED[flavour, gpu] = outcome.get("problem")
        if "version" in outcome:
            PROBED_VERSIONS[flavour] = outcome["version"]


def forget_flavours() -> None:
    """Forget what was tried."""
    flavour_version.cache_clear()
    flavour_problem.cache_clear()
    PROBED_VERSIONS.clear()
    _TRIED.clear()
