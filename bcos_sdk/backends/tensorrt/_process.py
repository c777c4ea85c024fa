"""TensorRT in a process of its own: it may end the process that it runs in, and must not take the caller along."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from typing import Any

from bcos_sdk._processes import last_lines, python_command
from bcos_sdk.errors import EngineError

__all__ = ["run_worker"]

_PROGRAM = """
from bcos_sdk.backends.tensorrt._worker import main
main()
"""


def run_worker(job: dict[str, Any]) -> dict[str, Any]:
    """What the worker answers to a job, or an `EngineError` with its last words."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        worker = subprocess.Popen(  # noqa: S603 - this very Python, and a program of ours
            python_command(_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
        )
        with worker:
            try:
                answer = _converse(worker, job)
            except BaseException:
                worker.kill()
                raise
        words.seek(0)
        if worker.returncode:
            raise EngineError(_reason(worker.returncode, words.read()))
    try:
        reply: dict[str, Any] = json.loads(answer.splitlines()[-1])
    except (IndexError, ValueError):
        raise EngineError("TensorRT's process gave no answer") from None
    if "problem" in reply:
        raise EngineError(reply["problem"])
    return reply


def _converse(worker: subprocess.Popen[str], job: dict[str, Any]) -> str:
    """Standard input stays open until the answer is there: its end tells the worker that nobody waits any more."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it ended already; its last words say why
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
    answer = worker.stdout.read()
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.close()
    return answer


def _reason(code: int, words: str) -> str:
    quoted = last_lines(words)
    if code < 0:
        return f"TensorRT crashed with signal {-code}" + (f" after saying: {quoted}" if quoted else "")
    return quoted or f"TensorRT ended with code {code}"
