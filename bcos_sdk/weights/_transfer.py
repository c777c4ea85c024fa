"""A file over HTTP, appended to what an earlier attempt left of it."""

from __future__ import annotations

import logging
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import click

__all__ = ["TransferError", "transfer"]

_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 20
_WORTH_RETRYING = {408, 425, 429, 500, 502, 503, 504}

log = logging.getLogger(__name__)


class TransferError(Exception):
    """What the network or the server did; never what the disk did, which stays an OSError."""

    def __init__(self, reason: str, *, retryable: bool = True) -> None:
        super().__init__(reason)
        self.retryable = retryable


def transfer(url: str, part: Path, *, label: str, progress: bool) -> None:
    """Append to `part` until the server says it is whole; each attempt goes on where the last stopped."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _receive(url, part, label=label, progress=progress)
            return
        except TransferError as error:
            if attempt == _ATTEMPTS or not error.retryable:
                raise
            log.info("%s: %s; trying again", part.name, error)
        time.sleep(_PAUSE_SECONDS * attempt)


def _receive(url: str, part: Path, *, label: str, progress: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    response = _ask(url, start=have)
    if response is None:
        return
    with response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            have = 0  # the server sends the whole file, asked for it or not
        expected = response.length  # None where the server does not say, or says nonsense
        total = None if expected is None else have + expected
        hidden = total is None or not (progress and sys.stderr.isatty())
        bar: Any
        with (
            part.open("ab" if have else "wb") as file,
            click.progressbar(length=total or 0, label=label, file=sys.stderr, hidden=hidden) as bar,
        ):
            bar.update(have)
            received = 0
            while chunk := _read(response):
                file.write(chunk)
                received += len(chunk)
                bar.update(len(chunk))
    if expected is not None and received < expected:
        raise TransferError(f"the connection was cut after {have + received} of {total} bytes")


def _ask(url: str, *, start: int) -> HTTPResponse | None:
    """The server's answer from byte `start` on, or None when it has no more than that to send."""
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
            return None  # the hash decides whether what is here is the whole file
        reason = f"the server answered {error.code} {error.reason}"
        raise TransferError(reason, retryable=error.code in _WORTH_RETRYING) from error
    if not isinstance(response, HTTPResponse):
        response.close()
        raise TransferError("the server redirects to an address that is not http(s)", retryable=False)
    return response


def _read(response: HTTPResponse) -> bytes:
    with _network():
        return response.read(_CHUNK)


@contextmanager
def _network() -> Iterator[None]:
    """Whatever fails inside is the network's fault, although Python calls most of it an OSError."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a redirect to no address
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise TransferError(reason) from error
