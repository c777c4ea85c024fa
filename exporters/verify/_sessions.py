"""Run graphs in ONNX Runtime on the CPU, with its default optimisations, in a child process.

A native crash there is an `ExportError` here, so that no half-written bundle stays behind.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bcos_sdk._extras import require
from bcos_sdk._processes import last_lines, python_command
from bcos_sdk.contract import IMAGE, TARGETS
from bcos_sdk.errors import ExportError
from bcos_sdk.exporters.verify._session_process import Header, read_frame, write_frame

__all__ = ["Session", "open_session", "run_graph", "run_session", "sessions_end"]

_Array: TypeAlias = np.ndarray[Any, Any]
_PROGRAM = "from bcos_sdk.exporters.verify._session_process import main\nmain()\n"
_REPORT = "This is a fault in the exporter, or ONNX Runtime is too old. Please report it."


class _Process:
    """The child process of one thread. It starts with its first graph."""

    def __init__(self) -> None:
        require("onnxruntime", purpose="comparing graphs with torch")
        self.owner = os.getpid()
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see `end`
        self._child = subprocess.Popen(  # noqa: S603 - the same Python, and a program of this package
            python_command(_PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        self._opened = 0

    def open(self, path: Path) -> Session:
        self._opened += 1
        reply, _ = self.ask({"do": "open", "session": self._opened, "path": str(path)}, f"loading {path.name}")
        return Session(self, self._opened, path.name, tuple(reply["outputs"]))

    def ask(self, request: Header, doing: str, arrays: Mapping[str, _Array] | None = None) -> tuple[Header, Any]:
        """Send a request and wait for its reply. A failure or a crash is an `ExportError`."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            write_frame(self._child.stdin, request, arrays or {})
            reply, results = read_frame(self._child.stdout)
        except (EOFError, BrokenPipeError):
            raise ExportError(f"ONNX Runtime failed while {doing}: {self._last_words()}", hint=_REPORT) from None
        except BaseException:  # such as Ctrl-C: the reply would be read for the next request
            self.end()
            raise
        if "problem" in reply:
            raise ExportError(f"ONNX Runtime failed while {doing}: {reply['problem']}", hint=_REPORT)
        return reply, results

    def _last_words(self) -> str:
        code = self._child.wait()
        self._stderr.seek(0)
        said = last_lines(self._stderr.read())
        self.end()
        ended = f"signal {-code} ended its process" if code < 0 else f"its process ended with exit code {code}"
        return "; ".join(filter(None, [ended, said]))

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def end(self) -> None:
        """End the process. It holds no data that could be lost."""
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._child.kill()
        self._child.wait()
        self._stderr.close()


class Session:
    """A graph that is loaded in the child process."""

    def __init__(self, process: _Process, number: int, name: str, outputs: tuple[str, ...]) -> None:
        self.outputs = outputs
        self._process, self._number, self._name = process, number, name

    def run(self, names: Sequence[str], feed: Mapping[str, _Array]) -> list[_Array]:
        request = {"do": "run", "session": self._number, "outputs": list(names)}
        _, results = self._process.ask(request, f"running {self._name}", feed)
        return [results[name] for name in names]


class _Threads(threading.local):
    process: _Process | None = None
    depth = 0


_THREAD = _Threads()


@contextlib.contextmanager
def sessions_end() -> Iterator[None]:
    """Close the graphs that this block opens. The process ends with the outermost of such blocks in this thread."""
    _THREAD.depth += 1
    try:
        yield
    finally:
        _THREAD.depth -= 1
        process = _THREAD.process
        if process is not None and process.owner == os.getpid():
            if _THREAD.depth and not process.has_ended:
                process.ask({"do": "close"}, "closing graphs")
            else:
                process.end()
                _THREAD.process = None


def open_session(path: Path) -> Session:
    """Load a graph in the child process. It stays loaded until `sessions_end`."""
    process = _THREAD.process
    if process is None or process.has_ended or process.owner != os.getpid():
        process = _THREAD.process = _Process()
    return process.open(path)


def run_graph(path: Path, images: _Array) -> dict[str, _Array]:
    """All outputs of a predict graph by name."""
    return run_session(open_session(path), images)


def run_session(
    session: Session, images: _Array, targets: _Array | None = None, names: Sequence[str] | None = None
) -> dict[str, _Array]:
    """The named outputs of a graph, or all of them; without targets, of the predict graph."""
    feed = {IMAGE.name: images} | ({} if targets is None else {TARGETS.name: targets})
    names = names or session.outputs
    return dict(zip(names, session.run(names, feed), strict=True))
