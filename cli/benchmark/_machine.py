"""What the figures depend on and a reader must know; nothing that says whose machine it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from bcos_sdk._extras import installed_version
from bcos_sdk.cli.benchmark._report import Machine

__all__ = ["describe_machine"]

_PACKAGES = ("bcos-sdk", "onnxruntime", "onnxruntime-gpu", "openvino", "torch", "torchvision", "bcos", "onnx", "numpy")


def describe_machine() -> Machine:
    """The processor and the versions of what computes."""
    versions = {name: installed_version(name) for name in _PACKAGES}
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: version for name, version in versions.items() if version is not None},
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
