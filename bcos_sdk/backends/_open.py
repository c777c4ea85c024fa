"""Open a bundle, or a single ONNX file, on a device. A named device is used or is an error: there is no fallback."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk import errors
from bcos_sdk._logs import log
from bcos_sdk.backends._backend import Backend, GraphBackend
from bcos_sdk.backends._devices import RUNTIMES, parse_device
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import Device, OpenOptions
from bcos_sdk.backends._selftest import SelfTestedBackend
from bcos_sdk.bundle import Bundle

__all__ = ["open_backend", "open_graph"]

_TRY_NEXT_DEVICE = (
    errors.BundleError,
    errors.DeviceError,
    errors.MissingExtraError,
    errors.OutputError,
)
"""Errors that make `auto` try the next device. Any other error would also occur on the CPU, so it propagates."""


def open_backend(
    bundle: Bundle,
    device: str = "auto",
    *,
    threads: int | None = None,
    tf32: bool = False,
    trust_engines: bool = False,
) -> Backend:
    """Open the bundle on the named device, or raise an error.

    "auto" takes the first device that works and passes the self-test. It builds no engine. The CPU comes last.
    """
    named = parse_device(device)
    if named is not None:
        return _open(bundle, named, OpenOptions(threads, tf32, trust_engines, by_name=True))
    options = OpenOptions(threads, tf32, trust_engines, by_name=False)
    *candidates, fallback = map(Device, RUNTIMES)
    skipped: list[str] = []
    for candidate in candidates:
        opened = _try_open(bundle, candidate, options)
        if not isinstance(opened, str):
            _log_choice(candidate, skipped)
            return opened
        skipped.append(opened)
    _log_choice(fallback, skipped)
    return _open(bundle, fallback, options)


def open_graph(path: Path, device: Device, *, threads: int | None = None) -> Graph:
    """Load an ONNX file that belongs to no bundle, without a self-test. TensorRT cannot run one."""
    device.require()
    return device.runtime.open_onnx(path, device.index, threads=threads)


def _try_open(bundle: Bundle, device: Device, options: OpenOptions) -> Backend | str:
    """The opened bundle, or the reason why `auto` skips the device."""
    try:
        return _open(bundle, device, options)
    except _TRY_NEXT_DEVICE as error:
        return error.message


def _open(bundle: Bundle, device: Device, options: OpenOptions) -> Backend:
    device.require()
    backend = GraphBackend(bundle, device, options)
    try:
        on_open = device.runtime.self_tests_on_open(by_name=options.by_name)
        return SelfTestedBackend(backend, bundle, on_open=on_open)
    except BaseException:
        backend.close()
        raise


def _log_choice(device: Device, skipped: list[str]) -> None:
    log.info("device auto: %s%s", device, f" (skipped: {'; '.join(skipped)})" if skipped else "")
