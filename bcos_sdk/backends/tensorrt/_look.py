"""Ask the driver for its GPUs and try TensorRT on one of them, in one child process: each takes a second to start.

The child writes one line of JSON after each step. If TensorRT crashes it, what was written before is known.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from bcos_sdk._processes import python_command
from bcos_sdk.backends._driver import DRIVER_PROGRAM, Driver
from bcos_sdk.backends.tensorrt._worker import probe, reason_of_end

__all__ = ["Tried", "look", "main"]

_SECONDS = 180
_PROGRAM = """
from bcos_sdk.backends.tensorrt._look import main
main()
"""
Tried = dict[str, dict[str, str]]
"""For each flavour that was tried: its "version", or the "problem"."""


def look(gpu: int, flavours: Sequence[str]) -> tuple[Driver, Tried]:
    """The driver, and whether these flavours of TensorRT run on the GPU. What follows a crash is left out."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        output, end = _run(json.dumps({"gpu": gpu, "flavours": list(flavours)}), stderr)
    lines = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
    if not lines:
        return Driver(problem=f"the NVIDIA driver could not be queried: {end or 'no answer'}"), {}
    try:
        driver = Driver.model_validate(lines[0])
    except ValidationError:
        return Driver(problem="the NVIDIA driver could not be queried"), {}
    tried: Tried = {one.pop("flavour"): one for one in lines[1:]}
    missing = [one for one in flavours if one not in tried]
    if end is not None and missing:
        tried[missing[0]] = {"problem": end}
    return driver, tried


def _run(job: str, stderr: Any) -> tuple[str, str | None]:
    """What the child has written, and how it ended if that was not as usual."""
    try:
        done = subprocess.run(  # noqa: S603 - the same Python, and a program of this package
            python_command(_PROGRAM),
            input=job,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        written: Any = error.stdout or ""  # bytes on some systems
        text: str = written.decode("utf-8", "replace") if isinstance(written, bytes) else written
        return text, f"it did not respond within {_SECONDS} s"
    if not done.returncode:
        return done.stdout, None
    stderr.seek(0)
    return done.stdout, reason_of_end(done.returncode, stderr.read())


# ------------------------------------------------------------------------------------------------ in the child process


def main() -> None:
    """Read the GPU and the flavours from stdin, and write what is found."""
    job = json.loads(sys.stdin.read())
    replies = os.dup(1)
    os.dup2(2, 1)  # TensorRT prints its errors to stdout

    def reply(found: dict[str, Any]) -> None:
        os.write(replies, json.dumps(found).encode() + b"\n")

    driver = _driver()
    reply(driver)
    if job["gpu"] >= len(driver.get("gpus", ())):
        return
    for flavour in job["flavours"]:
        reply({"flavour": flavour, **_outcome(flavour, job)})


def _outcome(flavour: str, job: dict[str, Any]) -> dict[str, Any]:
    try:
        return probe(import_module(flavour), job)
    except Exception as error:  # an error of TensorRT, CUDA or Python
        return {"problem": " ".join(str(error).split()) or type(error).__name__}


def _driver() -> dict[str, Any]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(DRIVER_PROGRAM, {})  # noqa: S102 - a program of this package
        found: dict[str, Any] = json.loads(printed.getvalue())
    except SystemExit as error:
        return {"problem": str(error.code)}
    except Exception:
        return {"problem": "the NVIDIA driver could not be queried"}
    return found if found["gpus"] else {"problem": "the NVIDIA driver reports no GPU"}
