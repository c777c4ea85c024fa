"""Child processes that run Python with the packages of this process, and the memory of a process."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from pathlib import Path

__all__ = ["import_path", "is_running", "last_lines", "peak_memory", "python_command", "return_freed_memory"]

_LINES_QUOTED = 3
_SET_PATH = "import json, sys\nsys.path[:] = json.loads(sys.argv.pop(1))\n"
_WITHOUT_CURRENT_FOLDER = "import sys\nsys.path[:] = filter(None, sys.path)\n"


def python_command(program: str, *arguments: str, environment: bool = False) -> list[str]:
    """The command that runs `program` in a new, isolated Python with the import path of this process.

    `json` and `sys` are imported already; the arguments start at `sys.argv[1]`. With `environment`, Python obeys its
    variables, such as PYTHONPATH, as it did in this process.
    """
    options = ["-c", _WITHOUT_CURRENT_FOLDER + _SET_PATH] if environment else ["-I", "-c", _SET_PATH]
    options[-1] += program
    return [sys.executable, *options, json.dumps(import_path()), *arguments]


def import_path() -> list[str]:
    """`sys.path` without the current folder: a folder of images or models is data, never code."""
    here = {"", str(Path.cwd())}
    package = str(Path(__file__).resolve().parents[1])
    return [*dict.fromkeys([*(place for place in sys.path if place not in here), package])]


def last_lines(output: str) -> str:
    """The last lines of a process's stderr as one line, for an error message."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "; ".join(lines[-_LINES_QUOTED:])


def is_running(process: int) -> bool:
    """Whether there is a process with this id, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:  # no process has such a number
        return False
    return True


def return_freed_memory() -> None:
    """Let the C library give memory that was freed back to the system. It may keep hundreds of MB for later."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; musl keeps little
        if trim is not None:
            trim(0)


def peak_memory() -> int | None:
    """The largest number of bytes that this process has held in memory; None if the platform does not report it.

    `/proc` comes first: on Linux, `getrusage` of a new process includes the peak of the process that started it.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return _peak_by_getrusage()
    held = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return int(held[1]) * 1024 if held else None


def _peak_by_getrusage() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
