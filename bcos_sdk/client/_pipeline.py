"""The pipeline of a call: while one batch runs, the next waits for the device and the one after it is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from bcos_sdk.client._batches import BatchRunner, Job
from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.client._layers import LayerQuery
from bcos_sdk.client._outcomes import Outcomes, as_outcome
from bcos_sdk.client._targets import ResolvedTargets
from bcos_sdk.client._threads import DaemonThreads, Pending, client_closed
from bcos_sdk.errors import BcosError, QueueFullError
from bcos_sdk.images import ImageSource, LoadedImage, snapshot

__all__ = ["Pipeline", "Request"]

Result = TypeVar("Result")
Finish = Callable[["Request", LoadedImage, Any, int], Result]


@dataclass(frozen=True)
class Request:
    """One image of a call. `targets` is None for a prediction, and an error if the targets of this image are wrong."""

    source: str
    image: ImageSource
    targets: ResolvedTargets | BcosError | None = None
    query: LayerQuery | None = None
    """What to explain of a layer, instead of targets."""

    @property
    def target_count(self) -> int:
        """The number of targets to compute; 0 for a prediction."""
        return len(self.targets.rows) if isinstance(self.targets, ResolvedTargets) else 0


@dataclass(frozen=True)
class _Submitted:
    """A batch that was decoded and queued. `job` has the images that could be loaded."""

    images: list[tuple[Request, LoadedImage | BcosError]]
    job: Job


@dataclass(frozen=True)
class Pipeline:
    """Decodes images in threads, runs them in batches, and returns outcomes in the order of the images."""

    load: Callable[[ImageSource, str], LoadedImage]
    decoders: DaemonThreads
    runner: BatchRunner

    def run(
        self,
        requests: Iterable[Request],
        finish: Finish[Result],
        deadline: Deadline,
        *,
        weights: bool = False,
        relay: int | None = None,
        features: tuple[int, ...] | None = None,
    ) -> Outcomes[Result]:
        """Yield the source and the outcome of every request, in order. At most three batches are in memory.

        `finish(request, image, outputs, place)` makes the result of the image at index `place` of a batch. Only the
        first batch of a call can be refused with `QueueFullError`. Later batches wait for room in the queue.
        """
        decoding: deque[list[tuple[Request, Pending]]] = deque()
        submitted: deque[_Submitted] = deque()
        admitted = False
        try:
            for chunk in self._chunks(requests, deadline):
                decoding.append(chunk)
                if len(decoding) > 1 or not submitted:  # one batch is decoded ahead
                    submitted.append(
                        self._submit(decoding.popleft(), deadline, weights, relay, features, wait=admitted)
                    )
                    admitted = True
                if len(submitted) > 1:
                    yield from _finish(submitted.popleft(), finish, deadline)
            if decoding:
                submitted.append(self._submit(decoding.popleft(), deadline, weights, relay, features, wait=admitted))
            while submitted:
                yield from _finish(submitted.popleft(), finish, deadline)
        finally:
            deadline.cancel()  # the caller may have stopped early: drop what has not run
            for _, image in (pair for chunk in decoding for pair in chunk):
                image.set(client_closed())  # nobody waits for it: do not decode it

    def _chunks(self, requests: Iterable[Request], deadline: Deadline) -> Iterator[list[tuple[Request, Pending]]]:
        """Group consecutive requests with the same number of targets into batches, and start to decode them."""
        chunk: list[tuple[Request, Pending]] = []
        target_count = 0
        for request in requests:
            if chunk and target_count != request.target_count:
                yield chunk
                chunk = []
            target_count = request.target_count
            chunk.append((request, self._decode(request, deadline)))
            if len(chunk) == self.runner.images_at_once(target_count):
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _decode(self, request: Request, deadline: Deadline) -> Pending:
        """Return the loaded image or its error, which may be set later.

        Threads decode only paths and bytes. Other images are loaded here, because the caller may change them later.
        After the deadline nothing is loaded: a file of the caller may block.
        """
        if isinstance(request.targets, BcosError):
            return _completed(request.targets)
        if deadline.passed:
            return _completed(deadline_exceeded())
        image = as_outcome(snapshot, request.image, request.source, self.load)
        if not isinstance(image, (str, bytes)):
            return _completed(image)
        return self.decoders.submit(as_outcome, self._load, image, request.source)

    def _load(self, image: str | bytes, source: str) -> LoadedImage:
        loaded = self.load(image, source)
        if not self.runner.takes_pixels:
            loaded.encoded  # noqa: B018 - computed in this thread, and kept
        return loaded

    def _submit(
        self,
        decoding: list[tuple[Request, Pending]],
        deadline: Deadline,
        weights: bool,
        relay: int | None,
        features: tuple[int, ...] | None,
        *,
        wait: bool,
    ) -> _Submitted:
        images = [(request, _result_of(image, deadline)) for request, image in decoding]
        loaded = [(request, image) for request, image in images if isinstance(image, LoadedImage)]
        targets = [request.targets.rows for request, _ in loaded if isinstance(request.targets, ResolvedTargets)]
        queries = [request.query for request, _ in loaded if request.query is not None]
        # A batch has one type: if one of its images was passed encoded, all are encoded here.
        as_pixels = self.runner.takes_pixels and all(image.passed is None for _, image in loaded)
        arrays = [image.pixels if as_pixels else image.encoded for _, image in loaded]
        job = Job(arrays, targets or None, weights, deadline, queries or None, relay, features)
        if loaded:
            try:
                self.runner.submit(job, wait=wait)
            except QueueFullError:
                raise
            except BcosError as error:
                job.done.set(error)
        return _Submitted(images, job)


def _finish(batch: _Submitted, finish: Finish[Result], deadline: Deadline) -> Outcomes[Result]:
    place = 0
    for request, image in batch.images:
        outcome: Any = image
        if isinstance(image, LoadedImage):
            outcome = _result_of(batch.job.done, deadline)
            if not isinstance(outcome, BcosError):
                outcome = as_outcome(finish, request, image, outcome, place)
            place += 1
        yield request.source, outcome.about(request.source) if isinstance(outcome, BcosError) else outcome


def _completed(outcome: Any) -> Pending:
    pending = Pending()
    pending.set(outcome)
    return pending


def _result_of(pending: Pending, deadline: Deadline) -> Any:
    """The value, or the error if it is not set before the deadline."""
    return pending.value if pending.wait(deadline.remaining()) else deadline_exceeded()
