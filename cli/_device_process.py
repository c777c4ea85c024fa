"""Examine or measure a device in a child process: an error or a crash of its runtime becomes a result.

Protocol: the job is a line of JSON in the arguments. The child writes its reply to stdout as a line of JSON. What
runtimes print, and the stack of a crash, goes to stderr.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import IO, Any, TypeAlias

from bcos_sdk import backends
from bcos_sdk._processes import last_lines, python_command
from bcos_sdk.backends import Device, Outcome, parse_device
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.cli._device_measure import measure
from bcos_sdk.errors import BcosError

__all__ = ["examine_device", "main", "measure_device", "unusable"]

Job: TypeAlias = dict[str, Any]
Reply: TypeAlias = dict[str, Any]

_SECONDS = 3600
"""How long a child may take. Building the engines of one model takes minutes."""
_MOST_MESSAGES = 8000
"""How many characters of its stderr are kept."""
_PROGRAM = """
from bcos_sdk.cli._device_process import main
main()
"""

# ----------------------------------------------------------------------------------------------- in the calling process


def unusable(device: Device) -> str | None:
    """Why the device cannot be used, as far as this is known without loading a graph; None if nothing is known."""
    try:
        return device.problem()
    except Exception as error:  # the errors of runtimes have no other common base
        return _in_one_line(error)


def examine_device(device: Device) -> Outcome:
    """Why the device cannot be used, or the precision of its products, found out in a child process."""
    if (problem := unusable(device)) is not None:
        return Outcome(problem)
    reply = run_child({"task": "examine", "device": str(device)})
    return Outcome(reply["problem"], reply.get("precision"))


def measure_device(device: Device, bundle: Bundle, **options: bool) -> Reply:
    """What `measure` finds in a child process; or the "problem", with the last "messages" of the child."""
    model = {"path": str(bundle.path.resolve()), "sha256": bundle.sha256}
    return run_child({"task": "measure", "device": str(device), **model, "options": options})


def run_child(job: Job) -> Reply:
    """The reply of a child process. It always has a "problem", which is None if the child has done the job."""
    with tempfile.TemporaryFile() as stderr:
        try:
            done = subprocess.run(  # noqa: S603 - the same Python, and a program of this package
                python_command(_PROGRAM, json.dumps(job)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"it did not end within {_SECONDS} s", "messages": _tail(stderr)}
        except OSError as error:
            return {"problem": f"no process can be started for it: {error}"}
        messages = _tail(stderr)
    reply = _last_object(done.stdout)
    if done.returncode:
        reply = {**(reply or {}), "problem": _how_it_ended(done.returncode, messages, replied=reply is not None)}
    elif reply is None:
        reply = {"problem": "the process that ran it gave no reply"}
    return reply if reply["problem"] is None else {**reply, "messages": messages}


def _last_object(output: bytes) -> Reply | None:
    try:
        reply = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return reply if isinstance(reply, dict) and "problem" in reply else None


def _how_it_ended(code: int, messages: str, *, replied: bool) -> str:
    try:
        how = f"crashed with signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
    except ValueError:  # a signal without a name
        how = f"crashed with signal {-code}"
    if replied:
        return f"it did what was asked, but then its process {how}"
    # The stack of a crash is in the messages; its last lines say little.
    quoted = "" if code < 0 else last_lines(messages)
    return f"the process that ran it {how}" + (f": {quoted}" if quoted else "")


def _tail(stderr: IO[bytes]) -> str:
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _MOST_MESSAGES))
    return stderr.read().decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------------ in the child process


def main() -> None:
    """Do the job, and write the reply to stdout."""
    replies = os.dup(1)
    os.dup2(2, 1)  # runtimes print to stdout
    faulthandler.enable()
    reply = reply_to(json.loads(sys.argv[1]))
    with os.fdopen(replies, "w", encoding="utf-8") as file:
        file.write(json.dumps(reply) + "\n")


def reply_to(job: Job) -> Reply:
    try:
        return {"problem": None, **_TASKS[job["task"]](job)}
    except Exception as error:  # the errors of runtimes have no other common base
        traceback.print_exc()
        return {"problem": error.message if isinstance(error, BcosError) else _in_one_line(error)}


def _examine(job: Job) -> Reply:
    return backends.examine_device(_device(job))._asdict()


def _measure(job: Job) -> Reply:
    return measure(_device(job), open_bundle(job["path"], sha256=job["sha256"]), **job["options"])


def _device(job: Job) -> Device:
    device = parse_device(job["device"])
    assert device is not None, "a report names each device"
    return device


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


_TASKS: dict[str, Callable[[Job], Reply]] = {"examine": _examine, "measure": _measure}
