"""Count the attempts at a piece of work in files of a folder, so that the death of a worker does not lose the count.

Ray repeats what a dead worker has left, without end. An image that kills its worker would be met again each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, ValidationError

from bcos_sdk._untrusted import parse_json
from bcos_sdk.errors import ClusterError
from bcos_sdk.ray._storage import Folder

__all__ = ["Attempt", "Attempts", "marker_prefix"]

_MARKER = "_bcos_sdk_attempt-"
"""The name begins with an underscore, so that readers of data sets pass over it."""
_MOST_TOGETHER = 2
"""Attempts with all images in the worker. A worker may be killed from outside; twice with the same work is a sign."""
_MOST = 100


class _Marker(BaseModel):
    """What is known of earlier attempts."""

    model_config = ConfigDict(extra="forbid")

    attempts: int = 0
    deaths: Counter[str] = Counter()
    """How many processes have ended with this image."""
    image: str | None = None
    """The image that is explained alone now."""


class Attempt:
    """One attempt. Its notes are written before an image is begun, and survive this process."""

    def __init__(self, folder: Folder, file: str, name: str) -> None:
        self._folder = folder
        self._file = file
        self._marker = _read(folder, file)
        if self._marker.image is not None:  # the worker ended, with the process that explained this image
            self.died(self._marker.image)
        self._marker.attempts += 1
        if self._marker.attempts > _MOST:
            raise ClusterError(
                f"{name} was begun {_MOST} times, and each time the worker ended",
                source=name,
                hint="The logs of Ray say what ended the workers; a machine may have too little memory.",
            )
        self._write()

    @property
    def alone(self) -> bool:
        """Whether earlier attempts ended in a way that makes it better to explain each image in a process apart."""
        return self._marker.attempts > _MOST_TOGETHER

    def deaths(self, image: str) -> int:
        """How many processes have ended with this image."""
        return self._marker.deaths[image]

    def begin(self, image: str) -> None:
        """Note that this image is explained now."""
        if self._marker.image != image:
            self._marker.image = image
            self._write()

    def died(self, image: str) -> None:
        """Note that a process has ended with this image."""
        self._marker.deaths[image] += 1
        self._marker.image = None

    def _write(self) -> None:
        self._folder.write(self._file, self._marker.model_dump_json().encode("utf-8"))


class Attempts:
    """`with Attempts(folder, session).counted(name) as attempt:` the marker is removed unless this process dies."""

    def __init__(self, folder: Folder, session: str) -> None:
        self._folder = folder
        self._session = session

    @contextmanager
    def counted(self, name: str) -> Iterator[Attempt]:
        """An attempt at the work `name`, which is unique in the session."""
        file = f"{marker_prefix(self._session)}{name}.json"
        try:
            yield Attempt(self._folder, file, name)
        finally:
            self._folder.remove(file)


def marker_prefix(session: str = "") -> str:
    """What the names of the markers of a session begin with, or those of all sessions."""
    return f"{_MARKER}{session}-" if session else _MARKER


def _read(folder: Folder, file: str) -> _Marker:
    written = folder.read(file)
    try:
        return _Marker() if written is None else _Marker.model_validate(parse_json(written))
    except (ValueError, ValidationError):  # nobody else writes it: half a file
        return _Marker()
