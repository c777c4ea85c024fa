"""Open a bundle, or a single ONNX file, on a device. A named device is used or is an error: there is no fallback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bcos_sdk import errors
from bcos_sdk._logs import log
from bcos_sdk.backends._backend import Backend, GraphBackend
from bcos_sdk.backends._devices import RUNTIMES, parse_device
from bcos_sdk.backends._driver import may_have_gpu, probe_driver
from bcos_sdk.backends._graph import Graph
from bcos_sdk.backends._runtime import Device, OpenOptions
from bcos_sdk.backends._selftest import SelfTestedBackend
from bcos_sdk.backends._trial import crash_of
from bcos_sdk.bundle import Bundle, InputShapes

__all__ = ["open_backend", "open_graph", "open_on_device"]

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
    cuda_graphs: bool = False,
) -> Backend:
    """Open the bundle on the named device, or raise an error.

    "auto" takes the first device that works and passes the self-test. It builds no engine. The CPU comes last. A device
    that may crash is tried in a child process first, once for each bundle.
    """
    named = parse_device(device)
    if named is not None:
        return open_on_device(bundle, named, OpenOptions(threads, tf32, trust_engines, cuda_graphs, by_name=True))
    options = OpenOptions(threads, tf32, trust_engines, cuda_graphs, by_name=False)
    *candidates, fallback = map(Device, RUNTIMES)
    skipped: dict[Device, str] = {}
    for candidate in candidates:
        opened = _try_open(bundle, candidate, options)
        if not isinstance(opened, str):
            _log_choice(candidate, skipped)
            return opened
        skipped[candidate] = opened
    _log_choice(fallback, skipped)
    return open_on_device(bundle, fallback, options)


def open_graph(path: Path, device: Device, *, threads: int | None = None, shapes: InputShapes | None = None) -> Graph:
    """Load an ONNX file that belongs to no bundle, without a self-test.

    `shapes` has the smallest, usual and largest shape of each input. TensorRT needs it, and builds an engine.
    """
    device.require()
    return device.runtime.open_onnx(path, device.index, threads=threads, shapes=shapes)


def _try_open(bundle: Bundle, device: Device, options: OpenOptions) -> Backend | str:
    """The opened bundle, or the reason why `auto` skips the device."""
    try:
        device.require()
        return crash_of(bundle, device, options) or open_on_device(bundle, device, options)
    except _TRY_NEXT_DEVICE as error:
        return error.message


def open_on_device(bundle: Bundle, device: Device, options: OpenOptions) -> Backend:
    """Open the bundle on this device, with the self-tests of the options, or raise an error."""
    device.require()
    *relaxed, strict = device.runtime.tf32_choices(bundle.manifest.precision, asked=options.tf32)
    if relaxed:
        try:
            return _open_tested(bundle, device, replace(options, tf32=relaxed[0]))
        except errors.SelfTestError as error:
            log.warning("%s; trying again without TF32, which is slower", error.message)
    return _open_tested(bundle, device, replace(options, tf32=strict))


def _open_tested(bundle: Bundle, device: Device, options: OpenOptions) -> Backend:
    backend = GraphBackend(bundle, device, options)
    try:
        on_open = device.runtime.self_tests_on_open(by_name=options.by_name)
        return SelfTestedBackend(backend, bundle, on_open=on_open)
    except BaseException:
        backend.close()
        raise


def _log_choice(device: Device, skipped: Mapping[Device, str]) -> None:
    gpus = [gpu.name for gpu in probe_driver().gpus] if not device.runtime.on_gpu and may_have_gpu() else []
    if (warning := passed_over(device, skipped, gpus)) is not None:
        log.warning("%s", warning)
    else:
        log.info("device auto: %s%s", device, f" (skipped: {'; '.join(skipped.values())})" if skipped else "")


def passed_over(chosen: Device, skipped: Mapping[Device, str], gpus: Sequence[str]) -> str | None:
    """The warning that a GPU of this machine is not used, with the reasons; None if it is used or there is none."""
    if chosen.runtime.on_gpu or not gpus:
        return None
    reasons = "; ".join(reason for device, reason in skipped.items() if device.runtime.on_gpu)
    return (
        f"device auto: {chosen}, although there is a GPU ({', '.join(gpus)}): {reasons}. "
        "`bcos-sdk doctor` tests each device; pip install 'bcos-sdk[gpu]' brings what device \"cuda\" needs "
        'except the driver, and `bcos-sdk export MODEL --trt` builds what device "tensorrt" needs'
    )
