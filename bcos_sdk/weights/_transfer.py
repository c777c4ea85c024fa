"""Download a file over HTTP, resuming a partial file. The number of bytes and the waiting time are bounded."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from bcos_sdk._logs import log
from bcos_sdk._progress import Progress
from bcos_sdk.weights._partial_file import open_partial

__all__ = ["TooLargeError", "TransferError", "transfer"]

_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_TIMEOUT_SECONDS = 30.0
_PATIENCE_SECONDS = 60.0
_SLOWEST = 1000  # bytes per second, on average over that time
_CHUNK = 1 << 20
_RETRYABLE_STATUS = {408, 425, 429, 500, 502, 503, 504}


class TransferError(Exception):
    """A failure of the network or the server. Failures of the local disk stay OSErrors."""

    def __init__(self, reason: str, *, retryable: bool = True) -> None:
        super().__init__(reason)
        self.retryable = retryable


class TooLargeError(TransferError):
    """The file has more bytes than it may have."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the server sends more than {largest:,} bytes", retryable=False)


def transfer(url: str, part: Path, *, largest: int, label: str, progress: bool) -> None:
    """Append to `part` until the server has sent the whole file. Each retry resumes where the last attempt stopped.

    A server that sends more than `largest` bytes is cut off with a `TooLargeError`, and the partial file is removed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _receive(url, part, largest=largest, label=label, progress=progress)
            return
        except TransferError as error:
            if isinstance(error, TooLargeError) or not part.stat().st_size:
                part.unlink()
            if attempt == _ATTEMPTS or not error.retryable:
                raise
            log.info("%s: %s; retrying", part.name, error)
        time.sleep(_PAUSE_SECONDS * attempt)


def _receive(url: str, part: Path, *, largest: int, label: str, progress: bool) -> None:
    with open_partial(part) as file:
        have = file.tell()
        response = _request(url, start=have)
        if response is None:
            return
        with response:
            if have and response.status != HTTPStatus.PARTIAL_CONTENT:
                have = 0  # the server ignored the range and sends the whole file
                file.truncate(0)
            expected = response.length  # None if Content-Length is missing or invalid
            total = None if expected is None else have + expected
            if have + (expected or 0) > largest:
                raise TooLargeError(largest)
            shown = total is not None and progress and sys.stderr.isatty()
            received = 0
            with Progress(total or 0, "MB", label=label, scale=1e6, shown=shown) as bar:
                bar.start_at(have)
                for chunk in _chunks(response, expected):
                    received += len(chunk)
                    if have + received > largest:
                        raise TooLargeError(largest)
                    file.write(chunk)
                    bar.step(len(chunk))
    if expected is not None and received < expected:
        raise TransferError(f"the connection ended after {have + received} of {total} bytes")


def _chunks(response: HTTPResponse, expected: int | None) -> Iterator[bytes]:
    """Yield what arrives, as it arrives. A server that keeps the connection open but sends almost nothing is left."""
    received = counted = 0
    began = time.monotonic()
    while chunk := _read(response, _CHUNK if expected is None else min(_CHUNK, expected - received)):
        yield chunk
        received += len(chunk)
        waited = time.monotonic() - began
        if waited > _PATIENCE_SECONDS:
            if received - counted < _SLOWEST * waited:
                raise TransferError(f"the server sent only {received - counted} bytes in {waited:.0f} seconds")
            began, counted = time.monotonic(), received


def _request(url: str, *, start: int) -> HTTPResponse | None:
    """Request the file from byte `start` on. Return the response, or None if the file ends there."""
    headers = {"User-Agent": "bcos-sdk", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the registry allows http(s) only
    try:
        with _network():
            response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None  # the caller checks the hash of the file
        reason = f"the server returned {error.code} {error.reason}"
        raise TransferError(reason, retryable=error.code in _RETRYABLE_STATUS) from error
    if not isinstance(response, HTTPResponse):
        response.close()
        raise TransferError("the server redirects to a URL that is not http(s)", retryable=False)
    return response


def _read(response: HTTPResponse, most: int) -> bytes:
    with _network():
        return response.read1(most) if most else b""


@contextmanager
def _network() -> Iterator[None]:
    """Turn every error inside into a `TransferError`: Python reports most network errors as OSError."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a redirect to an invalid URL
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise TransferError(reason) from error
