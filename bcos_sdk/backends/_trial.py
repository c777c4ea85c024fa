"""Try a device with a bundle in a child process before `auto` opens it, so that a native crash ends only the child.

The verdict is kept in the cache: the child runs once for a bundle, a version of the runtime, a processor and a number
of threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bcos_sdk._extras import installed_version
from bcos_sdk._files import atomic_write, read_plain
from bcos_sdk._logs import log
from bcos_sdk._private_folders import private_cache
from bcos_sdk._processes import python_command
from bcos_sdk.backends._runtime import Device, OpenOptions
from bcos_sdk.bundle import BUILTIN_SHA256, Bundle
from bcos_sdk.errors import BcosError

__all__ = ["crash_of", "judge_exit"]

_SECONDS = 600
_LARGEST_VERDICT = 1 << 14
_KILLED = (-9, -15, -2)
"""Signals that others send: they say nothing about the device."""
_PROGRAM = """
from bcos_sdk.backends._trial_process import main
main()
"""


class _Verdict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    key: dict[str, str | int]
    crash: str | None


def crash_of(bundle: Bundle, device: Device, options: OpenOptions) -> str | None:
    """How the device ends the process if it runs the bundle; None if it does not, or if that cannot be found out.

    Built-in models are not tried: the tests of this package run them on every device.
    """
    if (
        not device.runtime.crashes_are_tried
        or bundle.sha256 in BUILTIN_SHA256.values()
        or getattr(sys, "frozen", False)
    ):
        return None
    key = _key(bundle, device, options)
    if (known := _read(key)) is not None:
        return known.crash
    log.info("trying device %s with this bundle for the first time, in a child process", device)
    is_known, crash = _try(bundle, device, options)
    if is_known:
        _write(_Verdict(key=key, crash=crash))
    return crash


def _key(bundle: Bundle, device: Device, options: OpenOptions) -> dict[str, str | int]:
    height, width = bundle.manifest.input.size
    return {
        "bundle": bundle.sha256,
        "input_size": f"{height}x{width}",
        "device": str(device),
        "runtime": device.runtime.version(),
        "bcos_sdk": installed_version("bcos-sdk") or "",
        "processor": _processor(),
        "threads": options.threads or os.cpu_count() or 1,
    }


def _processor() -> str:
    """The model of the processor: what a runtime compiles depends on it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return f"{platform.machine()} {platform.processor()}"


def _try(bundle: Bundle, device: Device, options: OpenOptions) -> tuple[bool, str | None]:
    job: dict[str, Any] = {
        "path": str(bundle.path.resolve()),
        "sha256": bundle.sha256,
        "input_size": bundle.manifest.input.size,
        "device": str(device),
        "threads": options.threads,
    }
    try:
        done = subprocess.run(  # noqa: S603 - the same Python, and a program of this package
            python_command(_PROGRAM, json.dumps(job)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"device {device} did not open this bundle within {_SECONDS} s"
    except OSError as error:
        log.warning("device %s is not tried in a child process: %s", device, error)
        return False, None
    return judge_exit(device, done.returncode, done.stdout)


def judge_exit(device: Device, code: int, output: bytes) -> tuple[bool, str | None]:
    """Whether the exit code of the child tells about the device, and how the device has crashed, if it has."""
    if code == 0:  # an error of the device is found again, and reported, when this process opens the bundle
        return output.strip().endswith(b"tried"), None
    if code in _KILLED:
        return False, None
    how = f"with signal {-code}" if code < 0 else f"with exit code {code}"
    return True, f"device {device} crashes with this bundle: a process that tried it ended {how}"


def _path(key: dict[str, str | int]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return private_cache("trials") / f"{name}.json"


def _read(key: dict[str, str | int]) -> _Verdict | None:
    try:
        verdict = _Verdict.model_validate_json(read_plain(_path(key), _LARGEST_VERDICT))
    except (OSError, BcosError, ValidationError):
        return None
    return verdict if verdict.key == key else None


def _write(verdict: _Verdict) -> None:
    try:
        with atomic_write(_path(verdict.key)) as partial:
            partial.write_text(verdict.model_dump_json(), "utf-8")
    except (OSError, BcosError) as error:
        log.warning("the trial of device %s is not kept for the next start: %s", verdict.key["device"], error)
