"""From a bundle and the name of a device to a backend. Nothing falls back in silence."""

from __future__ import annotations

import logging

from bcos_sdk._extras import require
from bcos_sdk.backends._devices import Device, parse_device, problem_of, unavailable
from bcos_sdk.backends._interface import Backend
from bcos_sdk.backends._onnxruntime import OnnxRuntimeBackend
from bcos_sdk.backends._selftest import SelfTestedBackend
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import DeviceError, SelfTestError

__all__ = ["open_backend"]

logger = logging.getLogger("bcos_sdk")


def open_backend(bundle: Bundle, device: str = "auto", *, threads: int | None = None) -> Backend:
    """The bundle on the device asked for, or an error; for "auto" on a GPU if one really works, else on the CPU."""
    named = parse_device(device)
    require("onnxruntime", purpose="Running a model")
    if named is not None:
        return _open(bundle, named, threads)
    try:
        backend = _open(bundle, Device("cuda"), threads)
    except (DeviceError, SelfTestError) as error:
        backend = _open(bundle, Device("cpu"), threads)
        logger.info("device auto: cpu, since %s", error.message)
    else:
        logger.info("device auto: %s", backend.device)
    return backend


def _open(bundle: Bundle, device: Device, threads: int | None) -> Backend:
    problem = problem_of(device)
    if problem is not None:
        raise unavailable(device, problem)
    return SelfTestedBackend(OnnxRuntimeBackend(bundle, device, threads=threads), bundle)
