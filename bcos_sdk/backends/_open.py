"""From a bundle and the name of a device to a backend. Nothing falls back in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bcos_sdk import errors
from bcos_sdk._extras import require
from bcos_sdk.backends._devices import PROVIDERS, Device, parse_device, problem_of, unavailable
from bcos_sdk.backends._graphs import Graph, GraphBackend
from bcos_sdk.backends._interface import Backend
from bcos_sdk.backends._selftest import SelfTestedBackend
from bcos_sdk.backends.onnxruntime._graph import open_session_graph
from bcos_sdk.backends.openvino._graph import open_openvino_graph
from bcos_sdk.backends.tensorrt._graph import open_engine_graph
from bcos_sdk.bundle import Bundle

__all__ = ["open_backend"]

logger = logging.getLogger("bcos_sdk")

_BEST_FIRST = (Device("tensorrt"), Device("cuda"), Device("openvino"))
# What the CPU would fail with as well is left to it to say.
_PASSED_OVER = (
    errors.BundleError,
    errors.DeviceUnavailableError,
    errors.EngineError,
    errors.InferenceError,
    errors.MissingExtraError,
    errors.OutputError,
    errors.SelfTestError,
)


def open_backend(bundle: Bundle, device: str = "auto", *, threads: int | None = None, tf32: bool = False) -> Backend:
    """The bundle on the device asked for, or an error; for "auto" on the best that really works, at last on the CPU."""
    named = parse_device(device)
    if named is not None:
        return _open(bundle, named, threads, tf32, asked=True)
    reasons = []
    for candidate in _BEST_FIRST:
        opened = _try_open(bundle, candidate, threads, tf32)
        if isinstance(opened, str):
            reasons.append(opened)
        else:
            logger.info("device auto: %s%s", opened.device, _since(reasons))
            return opened
    logger.info("device auto: cpu%s", _since(reasons))
    return _open(bundle, Device("cpu"), threads, tf32, asked=False)


def _since(reasons: list[str]) -> str:
    return f", since {'; '.join(reasons)}" if reasons else ""


def _try_open(bundle: Bundle, device: Device, threads: int | None, tf32: bool) -> Backend | str:
    """The bundle on that device if nothing need be built for it, or why not."""
    try:
        return _open(bundle, device, threads, tf32, asked=False)
    except _PASSED_OVER as error:
        return error.message


def _open(bundle: Bundle, device: Device, threads: int | None, tf32: bool, *, asked: bool) -> Backend:
    if device.kind in PROVIDERS:
        require("onnxruntime", purpose="Running a model")
    problem = problem_of(device)
    if problem is not None:
        raise unavailable(device, problem)
    open_graph: Callable[[Path], Graph]
    if device.kind == "tensorrt":
        open_graph = partial(open_engine_graph, bundle=bundle, device=device, tf32=tf32, asked=asked)
    elif device.kind == "openvino":
        open_graph = partial(open_openvino_graph, threads=threads)
    else:
        open_graph = partial(open_session_graph, device=device, threads=threads, tf32=tf32)
    opened = GraphBackend(bundle, device, open_graph, tf32=tf32)
    try:
        return SelfTestedBackend(opened, bundle, at_once=_tested_at_once(device, asked=asked))
    except BaseException:
        opened.close()
        raise


def _tested_at_once(device: Device, *, asked: bool) -> bool:
    """A GPU is, and OpenVINO where the CPU comes next; otherwise who only predicts waits for no explain graph."""
    return device.is_gpu or (device.kind == "openvino" and not asked)
