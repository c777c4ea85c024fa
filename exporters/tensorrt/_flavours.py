"""Two TensorRTs: `tensorrt` builds on the GPU at hand, `tensorrt_rtx` on any machine for named compute capabilities."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from bcos_sdk._extras import require
from bcos_sdk.backends import probe_driver
from bcos_sdk.errors import DeviceError, InputError

__all__ = ["Flavour", "choose_flavour"]

Flavour = Literal["tensorrt", "tensorrt_rtx"]
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""What TensorRT for RTX 1.7 builds for."""


def choose_flavour(capabilities: Sequence[str]) -> Flavour:
    """The flavour that can do what was asked, or an error that says both ways on."""
    for capability in capabilities:
        if not re.fullmatch(r"\d+\.\d", capability) or capability not in CAPABILITIES:
            raise InputError(
                f"{capability} is no compute capability that engines can be built for",
                source=capability,
                hint=f"Choose from {', '.join(CAPABILITIES)}.",
            )
    if capabilities:
        require("tensorrt_rtx", purpose="Building engines ahead of time")
        return "tensorrt_rtx"
    driver = probe_driver()
    if driver.problem is not None:
        raise DeviceError(
            f"engines are built on the GPU that runs them, but {driver.problem}",
            hint="Run this on the machine with the GPU (pip install 'bcos-sdk[trt]'), or build ahead of time for it: "
            "--compute-capability 8.9 (pip install 'bcos-sdk[trt-rtx]').",
        )
    require("tensorrt", purpose="Building engines")
    return "tensorrt"
