"""One child process that decodes images. It is started when it is first needed, and again after it was ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import weakref
from io import RawIOBase
from typing import cast

from bcos_sdk._processes import last_lines, python_command
from bcos_sdk.errors import BcosError, ClientClosedError, DecoderCrashedError, DecodingTimeoutError
from bcos_sdk.images._decoding_frames import Header, read_body, read_header, write_message

__all__ = ["DecodingProcess"]

_PROGRAM = """
from bcos_sdk.images._decoding_worker import main
main()
"""
_SECONDS_TO_START = 60.0
_ENVIRONMENT = {
    **{f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")},
    # Keep the buffers of small pictures for the next one: glibc returns them to the system otherwise.
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
}

_all: weakref.WeakSet[DecodingProcess] = weakref.WeakSet()


class DecodingProcess:
    """One image at a time: only one thread may call `run` and `end`. Any thread may call `close`."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        _all.add(self)

    def run(
        self, job: Header, contents: bytes, sizes: tuple[int, int], seconds: float
    ) -> tuple[Header, list[bytearray]]:
        """Decode an image; return the header of the reply, and pixels and display, which have these sizes in bytes.

        The child process ends if it takes more than `seconds`. This and a crash raise an `ImageError`.
        """
        source = job["source"]
        child = self._started(source)
        try:
            with _Timer(child, seconds) as timer:
                write_message(_pipe(child.stdin), job, contents)
                reply = read_header(_pipe(child.stdout))
                wanted = () if "code" in reply else sizes if reply["display"] else sizes[:1]
                bodies = [read_body(_pipe(child.stdout), size) for size in wanted]
        except (EOFError, OSError, ValueError, KeyError):
            raise self._failure(child, source, seconds, timer.expired) from None
        except BaseException:  # for example KeyboardInterrupt: half a message was exchanged
            self.end()
            raise
        if timer.expired:
            raise self._failure(child, source, seconds, expired=True)
        if reply.get("last"):
            self.end()
        return reply, bodies

    def start(self) -> None:
        """Start the process, if it does not run."""
        self._started(None)

    def end(self) -> None:
        """End the process and free its pipes."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            _free(child)

    def close(self) -> None:
        """Kill the process, and start none again. The thread in `run`, or `end`, frees the rest."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def forget(self) -> None:
        """In a forked process: close the copies of the pipes, so that the decoder ends with the client."""
        child, self._child = self._child, None
        self._closed = True
        if child is not None:
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
            child.returncode = 0  # it is the child of another process

    def _started(self, source: str | None) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.end()
        try:
            child = subprocess.Popen(  # noqa: S603 - the same Python, and a program of this package
                python_command(_PROGRAM),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | _ENVIRONMENT,
                start_new_session=os.name == "posix",  # Ctrl-C is meant for the client
            )
        except (OSError, ValueError) as error:
            raise _not_started(source, str(error)) from None
        with self._lock:
            self._child = child
            if self._closed:
                child.kill()
        try:
            with _Timer(child, _SECONDS_TO_START):
                read_header(_pipe(child.stdout))
            _pipe(child.stderr).close()
        except (EOFError, OSError, ValueError):
            child.kill()
            said = last_lines(_pipe(child.stderr).read().decode("utf-8", "replace"))
            self.end()
            raise _client_closed() if self._closed else _not_started(source, said or "it gave no reply") from None
        except BaseException:
            self.end()
            raise
        return child

    def _failure(self, child: subprocess.Popen[bytes], source: str, seconds: float, expired: bool) -> BcosError:
        """End the process, and return the error that says why it gave no reply."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if not expired:
                child.wait(1)  # its pipes close a moment before its exit code is known
        ended = child.poll()
        self.end()
        if self._closed:
            return _client_closed()
        if expired or ended == -getattr(signal, "SIGXCPU", 0) != 0:
            return DecodingTimeoutError(f"{source} was not decoded within {seconds:g} seconds", source=source)
        how = "sent a wrong reply" if ended is None else f"ended with {_exit(ended)}"
        return DecoderCrashedError(f"the decoder of {source} {how}", source=source)


class _Timer:
    """`with _Timer(child, seconds):` the child is killed if the block takes longer, and `expired` is true."""

    def __init__(self, child: subprocess.Popen[bytes], seconds: float) -> None:
        self.expired = False
        self._child = child
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def _expire(self) -> None:
        self.expired = True
        self._child.kill()

    def __enter__(self) -> _Timer:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _free(child: subprocess.Popen[bytes]) -> None:
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _pipe(pipe: object) -> RawIOBase:
    return cast("RawIOBase", pipe)  # bufsize=0


def _exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _not_started(source: str | None, reason: str) -> DecoderCrashedError:
    hint = 'Check that this Python can start child processes, or use Limits(decoding="in_process").'
    return DecoderCrashedError(
        f"the child process that decodes images cannot be started: {reason}", source=source, hint=hint, retryable=True
    )


def _client_closed() -> ClientClosedError:
    return ClientClosedError("the client was closed")


def _forget_all() -> None:
    for process in list(_all):
        process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
