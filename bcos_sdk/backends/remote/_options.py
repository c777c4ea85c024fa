"""`Remote`: how a client talks to a server."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bcos_sdk.errors import InputError, shown

__all__ = ["Remote"]

_MOST_RETRIES = 20
_MOST_CONNECTIONS = 64
_LONGEST = 86_400.0


@dataclass(frozen=True)
class Remote:
    """How a client reaches a model behind an address.

    A request changes nothing on the server, so that repeating it is safe. It is repeated only if the server cannot be
    reached, the connection breaks, or the server says that it is busy or not ready; never after `answer_seconds`,
    because the server may still be computing.
    """

    bundle: str | os.PathLike[str] | None = None
    """The bundle that the server must serve: a folder, or the name of an export. It is needed if the server does not
    send the manifest. With it the client has the golden record, also if the server does not send it."""
    token: str | None = field(default=None, repr=False)
    """The bearer token of the server."""
    connect_seconds: float = 5.0
    """How long one attempt to connect may take."""
    answer_seconds: float = 60.0
    """How long the answer to a request may take. Then its images fail with a `DeadlineError`."""
    retries: int = 4
    """How often a request is repeated. The wait doubles from 0.1 to 5 seconds, and half of it is random."""
    connections: int = 4
    """The largest number of requests at once. Images that wait meanwhile are sent together."""
    ca_file: str | os.PathLike[str] | None = None
    """A PEM file with the certificates to trust for https and grpcs, instead of those of the system."""

    def __post_init__(self) -> None:
        for name in ("bundle", "ca_file"):
            _check(name, getattr(self, name), (str, os.PathLike, type(None)), "a path or None")
        _check("token", self.token, (str, type(None)), "text or None", secret=True)
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise _wrong("token", "text that is empty or not printable", "printable ASCII text")
        for name in ("connect_seconds", "answer_seconds"):
            seconds = getattr(self, name)
            _check(name, seconds, (int, float), "seconds")
            if not (0 < seconds <= _LONGEST) or math.isnan(seconds):
                raise _wrong(name, shown(seconds), f"seconds above 0, at most {_LONGEST:g}")
        for name, least, most in (("retries", 0, _MOST_RETRIES), ("connections", 1, _MOST_CONNECTIONS)):
            number = getattr(self, name)
            _check(name, number, (int,), "a whole number")
            if not least <= number <= most:
                raise _wrong(name, shown(number), f"{least} to {most}")
        if self.ca_file is not None:  # a client that is pickled finds it from another folder
            object.__setattr__(self, "ca_file", Path(self.ca_file).absolute())


def _check(name: str, value: Any, types: tuple[type, ...], expected: str, *, secret: bool = False) -> None:
    if not isinstance(value, types) or isinstance(value, bool):
        raise _wrong(name, f"a {type(value).__name__}" if secret else shown(value), expected)


def _wrong(name: str, found: str, expected: str) -> InputError:
    return InputError(f"{name} is {found}, expected {expected}", source=name, hint=f"Pass {expected}.")
