"""Images flow through: while one batch runs, the next waits for the device and the one after it is being decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar

from bcos_sdk.client._batches import BatchRunner, Deadline, Job, client_closed, deadline_passed
from bcos_sdk.client._targets import ResolvedTargets
from bcos_sdk.errors import BcosError, InferenceError, QueueFullError
from bcos_sdk.images import ImageSource, LoadedImage

__all__ = ["Pipeline", "Request"]

Result = TypeVar("Result")


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
        self,
        requests: Iterable[Request],
        finish: Callable[[Request, LoadedImage, Any, int], Result],
        deadline: Deadline,
        *,
        weights: bool = False,
    ) -> Iterator[tuple[str, Result | BcosError]]:
        """The source and outcome of every request, in order; a few batches are held, however many requests there are.

        `finish(request, image, outputs, place)` makes the result of the image at one place of a batch. A full queue
        refuses the call as a whole, and only at its beginning: once let in, a call waits for room.
        """
        decoding: deque[list[tuple[Request, Future[LoadedImage]]]] = deque()
        submitted: deque[_Submitted] = deque()
        let_in = False
        try:
            for chunk in self._chunks(requests):
                decoding.append([(request, self._decode(request)) for request in chunk])
                if len(decoding) > 1:
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

    def _chunks(self, requests: Iterable[Request]) -> Iterator[list[Request]]:
        """Neighbours with as many targets each, as many as make up a batch."""
        chunk: list[Request] = []
        for request in requests:
            if chunk and (chunk[0].rows != request.rows or len(chunk) >= self.runner.images_at_once(request.rows)):
                yield chunk
                chunk = []
            chunk.append(request)
        if chunk:
            yield chunk

    def _decode(self, request: Request) -> Future[LoadedImage]:
        failed: Future[LoadedImage] = Future()
        if isinstance(request.targets, BcosError):
            failed.set_exception(request.targets)
            return failed
        try:
            return self.decoders.submit(self.load, request.image, request.source)
        except RuntimeError:  # the pool is shut
            failed.set_exception(client_closed())
            return failed

    def _submit(
        self, decoding: list[tuple[Request, Future[LoadedImage]]], deadline: Deadline, weights: bool, *, wait: bool
    ) -> _Submitted:
        images: list[tuple[Request, LoadedImage | BcosError]] = [
            (request, _outcome_of(image, deadline)) for request, image in decoding
        ]
        good = [(request, image) for request, image in images if isinstance(image, LoadedImage)]
        rows = [request.targets.rows for request, _ in good if isinstance(request.targets, ResolvedTargets)]
        job = Job([image.encoded for _, image in good], rows or None, weights, deadline)
        if good:
            try:
                self.runner.submit(job, wait=wait)
            except QueueFullError:
                raise
            except BcosError as error:
                job.done.set_exception(error)
        return _Submitted(images, job)


def _finish(
    batch: _Submitted, finish: Callable[[Request, LoadedImage, Any, int], Result], deadline: Deadline
) -> Iterator[tuple[str, Result | BcosError]]:
    place = 0
    for request, image in batch.images:
        outcome: Result | BcosError
        if isinstance(image, BcosError):
            outcome = image
        else:
            outcome = _finish_one(batch.job, request, image, place, finish, deadline)
            place += 1
        yield request.source, outcome


def _finish_one(
    job: Job,
    request: Request,
    image: LoadedImage,
    place: int,
    finish: Callable[[Request, LoadedImage, Any, int], Result],
    deadline: Deadline,
) -> Result | BcosError:
    outputs = _outcome_of(job.done, deadline)
    if isinstance(outputs, BcosError):
        return outputs
    try:
        return finish(request, image, outputs, place)
    except BcosError as error:
        return error


def _outcome_of(future: Future[Any], deadline: Deadline) -> Any:
    """What a future gives, or the error that says why it gives nothing."""
    try:
        return future.result(deadline.remaining())
    except BcosError as error:
        return error
    except FutureTimeoutError:
        return deadline_passed()
    except CancelledError:
        return client_closed()
    except Exception as error:  # ours, but no reason to lose the other images
        return InferenceError(f"unexpected failure: {error!r}")
