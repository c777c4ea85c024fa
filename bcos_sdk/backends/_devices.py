"""The devices, and why one cannot be used here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from bcos_sdk._extras import installed_version, is_installed
from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends.tensorrt import flavour_problem, installed_flavours
from bcos_sdk.errors import DeviceUnavailableError

__all__ = ["PROVIDERS", "Device", "parse_device", "problem_of", "unavailable"]

Kind = Literal["cpu", "openvino", "cuda", "tensorrt"]
PROVIDERS: dict[Kind, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""The execution providers of ONNX Runtime; OpenVINO and TensorRT are run without it."""


@dataclass(frozen=True)
class Device:
    """A kind of device, and which one of them."""

    kind: Kind
    index: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.kind in ("cuda", "tensorrt")

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.is_gpu else self.kind


def parse_device(text: str) -> Device | None:
    """ "cpu", "openvino", "cuda", "cuda:1", "tensorrt", "tensorrt:1"; None for "auto"."""
    if text == "auto":
        return None
    match = re.fullmatch(r"(cpu|openvino)|(cuda|tensorrt)(?::(\d+))?", str(text))
    if match is None:
        raise DeviceUnavailableError(
            f"there is no device {text!r}",
            source=text,
            hint='Devices are "auto", "cpu", "openvino", "cuda", "cuda:1", "tensorrt", "tensorrt:1" and so on.',
        )
    return Device(cast("Kind", match[1] or match[2]), int(match[3] or 0))


def problem_of(device: Device) -> str | None:
    """Why a device cannot be used, as far as that can be told without a graph; None if nothing speaks against it."""
    return next(filter(None, (check(device) for check in _CHECKS[device.kind])), None)


def _runtime_problem(_device: Device) -> str | None:
    if PROVIDERS["cuda"] in providers_of_runtime():
        return None
    if installed_version("onnxruntime") and installed_version("onnxruntime-gpu"):
        return (
            "onnxruntime and onnxruntime-gpu are both installed and have overwritten each other; "
            "uninstall both, then: pip install 'bcos-sdk[gpu]'"
        )
    return "this ONNX Runtime has no CUDA; pip uninstall onnxruntime, then: pip install 'bcos-sdk[gpu]'"


def _driver_problem(device: Device) -> str | None:
    driver = probe_driver()
    if driver.problem is None and device.index >= len(driver.gpus):
        return f"there are {len(driver.gpus)} GPUs, numbered from 0"
    return driver.problem


def _openvino_problem(_device: Device) -> str | None:
    return None if is_installed("openvino") else "OpenVINO is not installed; pip install 'bcos-sdk[openvino]'"


def _package_problem(_device: Device) -> str | None:
    if installed_flavours():
        return None
    return "TensorRT is not installed; pip install 'bcos-sdk[trt]' or 'bcos-sdk[trt-rtx]'"


def _flavours_problem(device: Device) -> str | None:
    """Comes last: TensorRT may crash without a driver, even in the process that it is tried in."""
    problems = [flavour_problem(flavour, device.index) for flavour in installed_flavours()]
    return None if None in problems else "; ".join(filter(None, problems))


_CHECKS: dict[Kind, tuple[Callable[[Device], str | None], ...]] = {
    "cpu": (),
    "openvino": (_openvino_problem,),
    "cuda": (_runtime_problem, _driver_problem),
    "tensorrt": (_package_problem, _driver_problem, _flavours_problem),
}


def providers_of_runtime() -> list[str]:
    """What this ONNX Runtime was built with; that one of them works is another matter."""
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def unavailable(device: Device, reason: str) -> DeviceUnavailableError:
    return DeviceUnavailableError(
        f"device {device} does not work here: {reason}",
        source=str(device),
        hint='Use device="cpu", or device="auto" to take the best that works.',
    )
