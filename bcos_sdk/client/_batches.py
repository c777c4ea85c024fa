"""The queue of the device: one thread runs jobs, and merges jobs of several calls into one batch."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import Backend
from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.client._outcomes import as_outcome
from bcos_sdk.contract import ExplainOutputs
from bcos_sdk.errors import BcosError, ClientClosedError, QueueFullError

__all__ = ["BatchRunner", "Job", "client_closed", "queue_full"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Job:
    """Encoded images of one call that run together, with the targets of each; no targets for a prediction.

    The result of `done` is the outputs of these images, or the error for which they have no outputs.
    """

    images: list[Floats]
    targets: list[tuple[int, ...]] | None
    weights: bool
    deadline: Deadline
    done: Future[Any] = field(default_factory=Future)

    @property
    def kind(self) -> tuple[int, bool]:
        """Targets per image, and whether W(x) is fetched. Jobs can share a batch if both are equal."""
        return (len(self.targets[0]) if self.targets else 0), self.weights


class BatchRunner:
    """Runs jobs in the order of arrival, merged into batches of at most `max_batch` images × targets.

    At most `queue` images wait. A job that is larger than the whole queue is accepted if no other job waits.
    """

    def __init__(self, backend: Backend, *, max_batch: int, queue: int) -> None:
        self._backend = backend
        self._max_batch = max_batch
        self._room = queue
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bcos-sdk-device")
        self._thread.submit(int)  # start the thread now: later the machine may have no thread left

    @property
    def closed(self) -> bool:
        return self._closed

    def images_at_once(self, targets: int) -> int:
        """The number of images in a full batch if each image has this many targets."""
        return max(1, self._max_batch // max(1, targets))

    def check_room(self) -> None:
        """Raise `QueueFullError` or `ClientClosedError` before any image of a call is decoded."""
        with self._changed:
            self._refuse_if_closed()
            if not self._has_room(1):
                raise queue_full()

    def submit(self, job: Job, *, wait: bool) -> None:
        """Queue a job. If the queue is full, wait for room until the deadline, or raise `QueueFullError` at once."""
        size = len(job.images)
        with self._changed:
            seconds = job.deadline.remaining() if wait else 0.0
            if not self._changed.wait_for(lambda: self._closed or self._has_room(size), seconds):
                raise deadline_exceeded() if wait else queue_full()
            self._refuse_if_closed()
            self._room -= size
            self._waiting.append(job)
            self._thread.submit(self._run_next)

    def close(self) -> None:
        """Refuse new jobs, run those that wait, and close the backend."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.shutdown(wait=True)
        self._backend.close()

    def _has_room(self, size: int) -> bool:
        return self._room >= size or not self._waiting

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise client_closed()

    def _run_next(self) -> None:
        jobs = self._take()
        if jobs:
            outputs = as_outcome(self._run, jobs)
            start = 0
            for job in jobs:
                part = slice(start, start + len(job.images))
                start = part.stop
                job.done.set_result(outputs if isinstance(outputs, BcosError) else outputs[part])

    def _take(self) -> list[Job]:
        """Remove from the queue the first job and later jobs of its kind that fit into the same batch."""
        with self._changed:
            expired = [job for job in self._waiting if job.deadline.passed]
            taken: list[Job] = []
            images = 0
            for job in self._waiting:
                if job in expired:
                    continue
                fits = images + len(job.images) <= self.images_at_once(job.kind[0])
                if not taken or (job.kind == taken[0].kind and fits):
                    taken.append(job)
                    images += len(job.images)
            for job in (*expired, *taken):
                self._waiting.remove(job)
                self._room += len(job.images)
            self._changed.notify_all()
        for job in expired:
            job.done.set_result(deadline_exceeded())
        return taken

    def _run(self, jobs: list[Job]) -> Any:
        images = np.stack([image for job in jobs for image in job.images])
        targets = [of_image for job in jobs for of_image in job.targets or ()]
        if not targets:
            return self._backend.predict(images)
        return self._explain(images, np.array(targets, np.int64), jobs[0].weights)

    def _explain(self, images: Floats, targets: npt.NDArray[np.int64], weights: bool) -> ExplainOutputs:
        """Explain targets [B, K]. If K exceeds `max_batch`, the targets are split into several runs."""
        parts = [
            self._backend.explain(images, targets[:, start : start + self._max_batch], weights=weights)
            for start in range(0, targets.shape[1], self._max_batch)
        ]
        return ExplainOutputs.joined(parts)


def queue_full() -> QueueFullError:
    return QueueFullError("the queue of the client is full")


def client_closed() -> ClientClosedError:
    return ClientClosedError("the client is closed")
