"""Decoders that hang, crash or lie on request, and the child processes of this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bcos_sdk.images import _decoding_process

__all__ = ["CRASH", "EXIT", "HANG", "LIE", "SPIN", "child_pids", "obedient_decoders", "open_files"]

HANG, CRASH, EXIT, LIE, SPIN = b"hang", b"crash", b"exit", b"lie", b"spin"

_OBEDIENT = """
import os, signal, time
from bcos_sdk.images import _decoding_worker as worker
decode_image = worker.decode_image
def obey(contents, *rest):
    if contents == b"hang":
        time.sleep(600)
    while contents == b"spin":
        pass
    if contents == b"crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if contents == b"exit":
        os._exit(3)
    if contents == b"lie":
        os.write(4, b"\\xff" * 64)
        time.sleep(600)
    return decode_image(contents, *rest)
worker.decode_image = obey
worker.main()
"""


def obedient_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes that are started from now on do what the constants above say, and decode all other bytes."""
    monkeypatch.setattr(_decoding_process, "_PROGRAM", _OBEDIENT)


def child_pids() -> set[int]:
    """The child processes of this process, zombies included."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(status.parent.name))
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
