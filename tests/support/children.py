"""Run a Python script in a process of its own, so that a hang or a crash fails one test and not the whole run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

__all__ = ["run_child"]

_SECONDS = 90


def run_child(script: str, *arguments: str, exit_code: int = 0) -> str:
    """Return what the script prints. Fail with the stack of every thread if it hangs, crashes, or ends otherwise."""
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, errors = child.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # faulthandler then writes the stacks
        printed, errors = child.communicate()
        raise AssertionError(f"the process did not end in {_SECONDS} s\n{printed}\n{errors[-6000:]}") from None
    assert child.returncode == exit_code, f"exit code {child.returncode}\n{printed}\n{errors[-6000:]}"
    return printed
