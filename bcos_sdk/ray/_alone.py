"""Explain images one by one in a child process. An image that ends it again and again is a row with its error."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import IO, Any, cast

from typing_extensions import Self

from bcos_sdk._processes import python_command
from bcos_sdk.errors import BcosError, ClusterError, WorkerCrashedError
from bcos_sdk.ray._alone_process import Job, receive, send
from bcos_sdk.ray._attempts import Attempt
from bcos_sdk.ray._delivery import Delivery
from bcos_sdk.ray._rows import row_of
from bcos_sdk.ray._settings import WorkerSettings
from bcos_sdk.results import Failure

__all__ = ["LoneExplainer"]

_MOST_DEATHS = 2
"""A process may be killed from outside; twice with the same image is a sign."""
_SECONDS_TO_END = 5.0
_PROGRAM = """
from bcos_sdk.ray._alone_process import main
main()
"""


class LoneExplainer:
    """`with LoneExplainer(settings, attempt) as explainer:` makes the rows that an `Explainer` makes, bit by bit."""

    def __init__(self, settings: WorkerSettings, attempt: Attempt) -> None:
        self.settings = settings
        self._attempt = attempt
        self._child: subprocess.Popen[bytes] | None = None
        self._last = "together with its worker"
        self.device = ""
        delivery = settings.delivery  # a reference of Ray means nothing to the child
        self._sent = replace(settings, delivery=Delivery(delivery.sha256, path=str(delivery.folder().resolve())))
        self._running()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def hashes(self, paths: Iterable[str]) -> Iterator[str | None]:
        """The hash of each file; None if it cannot be read."""
        for path in paths:
            try:
                made: str | None = self._ask(("hash", path, None))
            except WorkerCrashedError:  # so will its row
                made = None
            yield made

    def rows_of(self, paths: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The row of each image, in order."""
        return (self._row(("row", path, None)) for path in paths)

    def rows_of_contents(self, cells: Iterable[tuple[Any, Any]]) -> Iterator[dict[str, Any]]:
        """The row of each path with the contents of its file, in order."""
        return (self._row(("row of contents", path, contents)) for path, contents in cells)

    def _row(self, job: Job) -> dict[str, Any]:
        try:
            row: dict[str, Any] = self._ask(job)
        except WorkerCrashedError as error:
            failure = Failure.of(error, str(job[1]))
            row = row_of(failure, image_sha256=None, device=self.device, work=self.settings.work)
        return row

    def _ask(self, job: Job) -> Any:
        """The answer of the child. A `WorkerCrashedError` if the image has ended it."""
        image = str(job[1])
        while self._attempt.deaths(image) < _MOST_DEATHS:
            child = self._running()
            self._attempt.begin(image)
            try:
                send(_pipe(child.stdin), job)
                answer = receive(_pipe(child.stdout))
            except (EOFError, OSError):
                self._last = self._end()
                self._attempt.died(image)
                continue
            if isinstance(answer, BcosError):
                raise answer
            return answer
        raise WorkerCrashedError(
            f"{image} ended each process that read and explained it, at last {self._last}", source=image
        )

    def _running(self) -> subprocess.Popen[bytes]:
        """The child process, started if it does not run."""
        if self._child is not None and self._child.poll() is None:
            return self._child
        for _ in range(_MOST_DEATHS):
            self._end()
            child = self._child = subprocess.Popen(  # noqa: S603 - the same Python, and a program of this package
                python_command(_PROGRAM, environment=True), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                send(_pipe(child.stdin), self._sent)
                device = receive(_pipe(child.stdout))
            except (EOFError, OSError):
                self._last = self._end()
                continue
            if isinstance(device, BcosError):
                self._end()
                raise device
            self.device = device
            return child
        raise ClusterError(
            f"a process that opens the model on a worker ended {self._last}",
            hint="The logs of Ray have what it printed. The machine may have too little memory, or the device may not "
            "work: try `bcos-sdk validate` there.",
        )

    def _end(self) -> str:
        """End the child process, and say how it ended."""
        child, self._child = self._child, None
        if child is None:
            return ""
        with suppress(OSError):
            _pipe(child.stdin).close()  # it then ends by itself
        try:
            code = child.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        _pipe(child.stdout).close()
        return f"with signal {-code}" if code < 0 else f"with exit code {code}"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    return cast("IO[bytes]", pipe)
