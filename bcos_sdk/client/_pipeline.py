"""Images flow through: while one batch runs, the next waits for the device and the one after it is being decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar

from bcos_sdk.client._batches import BatchRunner, Job, client_closed
from bcos_sdk.client._deadline import Deadline, deadline_passed
from bcos_sdk.client._targets import ResolvedTargets
from bcos_sdk.client._translate import as_outcome
from bcos_sdk.errors import BcosError, QueueFullError
from bcos_sdk.images import ImageSource, LoadedImage, take_image

__all__ = ["Pipeline", "Request"]

Result = TypeVar("Result")
Finish = Callable[["Request", LoadedImage, Any, int], Result]


@dataclass(frozen=True)
class Request:
    """One image of a call, and what is asked of it: nothing but a prediction, explanations, or a wrong target."""

    source: str
    image: ImageSource
    targets: ResolvedTargets | BcosError | None = None

    @property
    def rows(self) -> int:
        return len(self.targets.rows) if isinstance(self.targets, ResolvedTargets) else 0


@dataclass(frozen=True)
class _Submitted:
    """A batch that was decoded and queued; `job` holds the images that could be read."""

    images: list[tuple[Request, LoadedImage | BcosError]]
    job: Job


@dataclass(frozen=True)
class Pipeline:
    """Decoding in threads, running in batches, results in the order of the images."""

    load: Callable[[ImageSource, str], LoadedImage]
    decoders: ThreadPoolExecutor
    runner: BatchRunner

    def run(
        self, requests: Iterable[Request], finish: Finish[Result], deadline: Deadline, *, weights: bool = False
    ) -> Iterator[tuple[str, Result | BcosError]]:
        """The source and outcome of every request, in order; a few batches are held, however many requests there are.

        `finish(request, image, outputs, place)` makes the result of the image at one place of a batch. A full queue
        refuses the call as a whole, and only at its beginning: once let in, a call waits for room.
        """
        decoding: deque[list[tuple[Request, Future[Any]]]] = deque()
        submitted: deque[_Submitted] = deque()
        let_in = False
        try:
            for chunk in self._chunks(requests):
                decoding.append(chunk)
                if len(decoding) > 1 or not submitted:  # the device waits for nothing but the first batch
                    submitted.append(self._submit(decoding.popleft(), deadline, weights, wait=let_in))
                    let_in = True
                if len(submitted) > 1:
                    yield from _finish(submitted.popleft(), finish, deadline)
            if decoding:
                submitted.append(self._submit(decoding.popleft(), deadline, weights, wait=let_in))
            while submitted:
                yield from _finish(submitted.popleft(), finish, deadline)
        finally:
            deadline.cancel()  # what is not wanted any more need not be run
            for _, image in (pair for chunk in decoding for pair in chunk):
                image.cancel()

    def _chunks(self, requests: Iterable[Request]) -> Iterator[list[tuple[Request, Future[Any]]]]:
        """Neighbours with as many targets each, as many as make up a batch; their decoding has begun."""
        chunk: list[tuple[Request, Future[Any]]] = []
        rows = 0
        for request in requests:
            if chunk and rows != request.rows:
                yield chunk
                chunk = []
            rows = request.rows
            chunk.append((request, self._decode(request)))
            if len(chunk) == self.runner.images_at_once(rows):
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _decode(self, request: Request) -> Future[Any]:
        """A future of the image or of its error.

        Only paths and bytes are left to the threads: what the caller holds may be changed by him once he has it back.
        """
        if isinstance(request.targets, BcosError):
            return _known(request.targets)
        taken = as_outcome(take_image, request.image, request.source, self.load)
        if not isinstance(taken, (str, bytes)):
            return _known(taken)
        try:
            return self.decoders.submit(as_outcome, self.load, taken, request.source)
        except RuntimeError:  # no thread to be had, or none any more
            closed = self.runner.closed
            return _known(client_closed() if closed else as_outcome(self.load, taken, request.source))

    def _submit(
        self, decoding: list[tuple[Request, Future[Any]]], deadline: Deadline, weights: bool, *, wait: bool
    ) -> _Submitted:
        images = [(request, _result_of(image, deadline)) for request, image in decoding]
        good = [(request, image) for request, image in images if isinstance(image, LoadedImage)]
        rows = [request.targets.rows for request, _ in good if isinstance(request.targets, ResolvedTargets)]
        job = Job([image.encoded for _, image in good], rows or None, weights, deadline)
        if good:
            try:
                self.runner.submit(job, wait=wait)
            except QueueFullError:
                raise
            except BcosError as error:
                job.done.set_result(error)
        return _Submitted(images, job)


def _finish(batch: _Submitted, finish: Finish[Result], deadline: Deadline) -> Iterator[tuple[str, Result | BcosError]]:
    place = 0
    for request, image in batch.images:
        outcome: Any = image
        if isinstance(image, LoadedImage):
            outcome = _result_of(batch.job.done, deadline)
            if not isinstance(outcome, BcosError):
                outcome = as_outcome(finish, request, image, outcome, place)
            place += 1
        yield request.source, outcome.about(request.source) if isinstance(outcome, BcosError) else outcome


def _known(outcome: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(outcome)
    return future


def _result_of(future: Future[Any], deadline: Deadline) -> Any:
    """What a future gives, or the error that says why it gives nothing in time."""
    try:
        return future.result(deadline.remaining())
    except FutureTimeoutError:
        return deadline_passed()
    except CancelledError:
        return client_closed()
