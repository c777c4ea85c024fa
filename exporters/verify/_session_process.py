"""The program of a child process that runs graphs in ONNX Runtime, and the frames that it exchanges with its caller.

A frame is one line of JSON, then the bytes of its arrays. A request opens a graph, runs it, or closes all graphs. The
process ends when its stdin closes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import IO, Any, TypeAlias

import numpy as np

from bcos_sdk._telemetry import import_onnxruntime

__all__ = ["Arrays", "Header", "main", "read_frame", "write_frame"]

Arrays: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
Header: TypeAlias = dict[str, Any]


def write_frame(pipe: IO[bytes], header: Header, arrays: Arrays) -> None:
    """Write one frame and flush the pipe."""
    shapes = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    pipe.write(json.dumps(header | {"arrays": shapes}).encode() + b"\n")
    for array in arrays.values():
        pipe.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> tuple[Header, dict[str, np.ndarray[Any, Any]]]:
    """Read one frame. The end of the pipe is an `EOFError`."""
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    header = json.loads(line)
    arrays = {}
    for name, dtype, shape in header.pop("arrays"):
        array = np.empty(shape, dtype)
        rest = array.reshape(-1).view(np.uint8).data
        while rest.nbytes:
            count = pipe.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise EOFError
            rest = rest[count:]
        arrays[name] = array
    return header, arrays


def main() -> None:
    """Answer requests from stdin on stdout, until stdin closes."""
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as replies:
        with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123 - a device
            for stream in (0, 1):  # a library that prints must not write into a reply
                os.dup2(nothing.fileno(), stream)
        sessions: dict[int, Any] = {}
        with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
            while True:
                header, arrays = read_frame(requests)
                try:
                    reply, results = _answer(sessions, header, arrays)
                except Exception as error:  # the errors of ONNX Runtime have no narrower common base
                    reply, results = {"problem": str(error)}, {}
                write_frame(replies, reply, results)


def _answer(sessions: dict[int, Any], header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    if header["do"] == "open":
        session = _open(header["path"])
        sessions[header["session"]] = session
        return {"outputs": [output.name for output in session.get_outputs()]}, {}
    if header["do"] == "run":
        values = sessions[header["session"]].run(header["outputs"], dict(arrays))
        return {}, dict(zip(header["outputs"], values, strict=True))
    sessions.clear()
    return {}, {}


def _open(path: str) -> Any:
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
