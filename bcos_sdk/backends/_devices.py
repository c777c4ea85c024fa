"""All runtimes, and the devices that users can name."""

from __future__ import annotations

from itertools import chain

from bcos_sdk.backends._driver import probe_driver
from bcos_sdk.backends._runtime import Device, Runtime
from bcos_sdk.backends.onnxruntime import CPU, CUDA
from bcos_sdk.backends.openvino import OPENVINO
from bcos_sdk.backends.tensorrt import TENSORRT
from bcos_sdk.errors import DeviceUnavailableError

__all__ = ["RUNTIMES", "device_names", "list_devices", "parse_device"]

RUNTIMES: tuple[Runtime, ...] = (
    TENSORRT,
    CUDA,
    OPENVINO,
    CPU,
)
"""Every runtime, in the order in which `auto` tries them. The last one is the fallback."""


def parse_device(text: str) -> Device | None:
    """Return the device of that name, for example "cpu", "cuda" (the same as "cuda:0") or "tensorrt:1".

    "auto" gives None. Any other text is a `DeviceUnavailableError`.
    """
    if text == "auto":
        return None
    name, colon, index = str(text).partition(":")
    for runtime in RUNTIMES:
        if runtime.name == name and (not colon or (runtime.on_gpu and index.isdecimal())):
            return Device(runtime, int(index or 0))
    raise DeviceUnavailableError(
        f"there is no device {text!r}",
        source=text,
        hint="Devices are " + ", ".join(f'"{name}"' for name in device_names()) + " and so on.",
    )


def list_devices() -> list[Device]:
    """Every device of this machine, whether it works or not; the CPU first. GPU 0 is listed even if there is none."""
    gpus = max(1, len(probe_driver().gpus))
    return [Device(runtime, index) for runtime in reversed(RUNTIMES) for index in range(gpus if runtime.on_gpu else 1)]


def device_names() -> list[str]:
    """What a user can type as the device, the CPU first; the second GPU stands for all others."""
    names = ([one.name, f"{one.name}:1"] if one.on_gpu else [one.name] for one in reversed(RUNTIMES))
    return ["auto", *chain.from_iterable(names)]
