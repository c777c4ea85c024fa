"""One thread feeds the device; calls that wait share a batch, and no more wait than the queue holds."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import Backend
from bcos_sdk.client._deadline import Deadline, deadline_passed
from bcos_sdk.client._translate import as_outcome
from bcos_sdk.contract import ExplainOutputs
from bcos_sdk.errors import BcosError, ClientClosedError, QueueFullError

__all__ = ["BatchRunner", "Job", "client_closed", "queue_full"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Job:
    """Some images of one call; `rows` are their targets, none for a prediction. They are run together.

    `done` gives the outputs of these images, or the error that kept them from being run.
    """

    images: list[Floats]
    rows: list[tuple[int, ...]] | None
    weights: bool
    deadline: Deadline
    done: Future[Any] = field(default_factory=Future)

    @property
    def kind(self) -> tuple[int, bool]:
        """Jobs of one kind can share a batch: as many targets for every image, the same outputs."""
        return (len(self.rows[0]) if self.rows else 0), self.weights


class BatchRunner:
    """Runs jobs in the order of their arrival, merged up to `max_batch` rows (images × targets)."""

    def __init__(self, backend: Backend, *, max_batch: int, queue: int) -> None:
        self._backend = backend
        self._max_batch = max_batch
        self._room = queue
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bcos-sdk-device")
        self._thread.submit(int)  # begins the thread now, so that no job is queued without one

    @property
    def closed(self) -> bool:
        return self._closed

    def images_at_once(self, targets: int) -> int:
        """How many images make up a batch, if each has that many targets."""
        return max(1, self._max_batch // max(1, targets))

    def check_room(self) -> None:
        """Refuse early: before a call is worth any work."""
        with self._changed:
            self._refuse_if_closed()
            if not self._has_room(1):
                raise queue_full()

    def submit(self, job: Job, *, wait: bool) -> None:
        """Queue a job. Without room: wait for it until the deadline, or refuse at once."""
        size = len(job.images)
        with self._changed:
            seconds = job.deadline.remaining() if wait else 0.0
            if not self._changed.wait_for(lambda: self._closed or self._has_room(size), seconds):
                raise deadline_passed() if wait else queue_full()
            self._refuse_if_closed()
            self._room -= size
            self._waiting.append(job)
            self._thread.submit(self._run_next)

    def close(self) -> None:
        """Take nothing more, finish what waits, and close the backend."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.shutdown(wait=True)
        self._backend.close()

    def _has_room(self, size: int) -> bool:
        """A job larger than the whole queue is let in when nothing else waits."""
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
        """The first job, and later ones of its kind that fit into the same batch."""
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
            job.done.set_result(deadline_passed())
        return taken

    def _run(self, jobs: list[Job]) -> Any:
        images = np.stack([image for job in jobs for image in job.images])
        rows = [row for job in jobs for row in job.rows or ()]
        return self._explain(images, rows, jobs[0].weights) if rows else self._backend.predict(images)

    def _explain(self, images: Floats, rows: list[tuple[int, ...]], weights: bool) -> ExplainOutputs:
        """More targets than fit into a batch are explained some at a time."""
        targets = np.array(rows, np.int64)
        parts = [
            self._backend.explain(images, targets[:, start : start + self._max_batch], weights=weights)
            for start in range(0, targets.shape[1], self._max_batch)
        ]
        return ExplainOutputs.joined(parts)


def queue_full() -> QueueFullError:
    return QueueFullError("the queue of this client is full")


def client_closed() -> ClientClosedError:
    return ClientClosedError("this client is closed")
