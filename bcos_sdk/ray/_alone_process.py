"""The program of a child process that explains images one by one, until its worker ends or closes the pipe.

Messages are pickles: the worker and its child are the same program, and nobody else holds their pipes.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
import traceback
from queue import SimpleQueue
from typing import IO, Any

from bcos_sdk.errors import BcosError
from bcos_sdk.ray._explainer import Explainer

__all__ = ["Job", "main", "receive", "send"]

Job = tuple[str, Any, Any]
"""What to make ("hash", "row" or "row of contents"), the path, and for the last the contents."""
_LENGTH = struct.Struct(">Q")


def send(stream: IO[bytes], value: Any) -> None:
    """Write one message."""
    contents = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(contents)))
    stream.write(contents)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message. An EOFError if the other process has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    contents = stream.read(_LENGTH.unpack(head)[0])
    return pickle.loads(contents)  # noqa: S301 - from the process at the other end of our own pipe


def main() -> None:
    """Read settings and jobs from stdin; write the device, and the answer to each job, to stdout."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    settings = receive(requests)
    try:
        explainer = Explainer(settings)
    except BcosError as error:
        send(answers, error)
        return
    send(answers, explainer.device)
    jobs: SimpleQueue[Job] = SimpleQueue()
    threading.Thread(target=_read, args=(requests, jobs), daemon=True).start()
    try:
        while True:
            send(answers, _answer(explainer, jobs.get()))
    except (
        BaseException
    ):  # its worker then takes the image for the cause. Threads of a runtime must not keep it waiting
        traceback.print_exc()
        os._exit(1)


def _read(requests: IO[bytes], jobs: SimpleQueue[Job]) -> None:
    """Take jobs. If the worker was killed, this process ends at once, also in the middle of an image."""
    try:
        while True:
            jobs.put(receive(requests))
    except (EOFError, OSError):
        os._exit(0)


def _answer(explainer: Explainer, job: Job) -> Any:
    kind, path, contents = job
    try:
        if kind == "hash":
            (made,) = explainer.hashes([path])
            return made
        (row,) = explainer.rows_of([path]) if kind == "row" else explainer.rows_of_contents([(path, contents)])
        return row
    except BcosError as error:  # of the device or the cluster: it ends the run. Errors of images are rows
        return error
