"""The program of a child process that decodes images, one after the other, until its stdin closes.

Before each image it bounds its memory and its processor time. It writes no files and leaves no core dumps. It is not a
sandbox: it runs as the same user as the client.
"""

from __future__ import annotations

import contextlib
import os
import sys
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydantic import ValidationError

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, InputError, first_faults
from bcos_sdk.images._decoding_frames import Header, read_body, read_header, write_message
from bcos_sdk.images._load import decode_image
from bcos_sdk.limits import Limits

__all__ = ["main"]

_SPARE_SECONDS = 2
"""The client ends a decoder by wall time. The bound on processor time is for a client that was killed."""
_STALE = 4
"""A process that still holds 1/4 of the memory limit after an image is replaced."""


def main() -> None:
    """Read images from stdin and write pixels to stdout."""
    requests, replies = FileIO(os.dup(0), "rb"), FileIO(os.dup(1), "wb")
    Image.init()
    idle = _size()
    write_message(replies, {"ready": True})
    with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123 - a device
        for stream in (0, 1, 2):  # libraries may print
            os.dup2(nothing.fileno(), stream)
    _give_up_files()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            job = read_header(requests)
            contents = bytes(read_body(requests, job["size"]))
            _bound(idle, job)
            reply, *bodies = _reply(job, contents)
            del contents
            reply["last"] = _size() > idle + job["limits"]["decoding_memory"] // _STALE
            write_message(replies, reply, *bodies)


def _reply(job: Header, contents: bytes) -> tuple[Any, ...]:
    source = job["source"]
    try:
        limits = Limits.model_validate(job["limits"])
    except ValidationError as error:  # for example a format that a plug-in of the client reads
        problem = f"{source} cannot be decoded in a child process: {first_faults(error)}"
        return (_failure(InputError(problem, hint='Use other limits, or Limits(decoding="in_process").')),)
    try:
        image = decode_image(contents, source, InputSpec.model_validate(job["spec"]), limits, job["enlarge"])
    except BcosError as error:
        return (_failure(error),)
    reply = {
        "notes": image.notes,
        "geometry": image.geometry.model_dump(),
        "display": image.display is not None,
    }
    arrays = [image.pixels] if image.display is None else [image.pixels, image.display]
    return reply, *(np.ascontiguousarray(array).data for array in arrays)


def _failure(error: BcosError) -> Header:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def _size() -> int:
    """The size of the address space in bytes, which the kernel bounds; 0 if the platform does not tell it."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _give_up_files() -> None:
    """No files, no core dumps; and if the machine runs out of memory, end this process before its client."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    if sys.platform != "win32":
        import resource

        for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
            resource.setrlimit(kind, (0, 0))


def _bound(idle: int, job: Header) -> None:
    """Bound memory and processor time for the next image."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime + job["limits"]["decoding_seconds"] + _SPARE_SECONDS
    bounds = {resource.RLIMIT_CPU: int(seconds) + 1}
    if idle:
        bounds[resource.RLIMIT_AS] = idle + job["limits"]["decoding_memory"]
    for kind, bound in bounds.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
