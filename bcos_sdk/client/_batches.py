"""The queue of the device: one thread runs jobs, and merges jobs of several calls into one batch.

A backend that takes several runs at once, such as a server, gets as many threads.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import numpy as np

from bcos_sdk._logs import log
from bcos_sdk.backends import Backend, ImageList, Images
from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.client._exit import leave_threads_alone
from bcos_sdk.client._layers import LayerQuery
from bcos_sdk.client._outcomes import as_outcome
from bcos_sdk.client._threads import DaemonThreads, Pending, client_closed
from bcos_sdk.contract import ExplainOutputs, Integers
from bcos_sdk.errors import BcosError, QueueFullError

__all__ = ["BatchRunner", "Job", "queue_full"]


_SECONDS_TO_STOP = 2.0
"""How long to wait for a run that was told to stop. ONNX Runtime and OpenVINO stop after the current operator."""
_SECONDS_BETWEEN_STOPS = 0.05
_THREAD = "bcos-sdk-device"


@dataclass(frozen=True, eq=False)
class Job:
    """Images of one call that run together, with the targets of each; no targets for a prediction.

    The images are all encoded, or all pixels.

    The value of `done` is the outputs of these images, or the error for which they have no outputs.
    """

    images: Sequence[Images]
    targets: list[tuple[int, ...]] | None
    weights: bool
    deadline: Deadline
    queries: list[LayerQuery] | None = None
    """What to explain of a layer, one query per image."""
    relay: int | None = None
    """The layer by whose activations the targets are explained; None: by pixels."""
    features: tuple[int, ...] | None = None
    """The layers whose activations are wanted, without an explanation."""
    done: Pending = field(default_factory=Pending)

    @property
    def kind(self) -> tuple[object, ...]:
        """Targets, whether W(x) is fetched, layer and type of images. Jobs can share a batch if all are equal."""
        layer = self.queries[0].layer if self.queries else None
        return self.target_count, self.weights, self.relay, layer, self.features, self.images[0].dtype

    @property
    def target_count(self) -> int:
        return len(self.targets[0]) if self.targets else 0


_runners: WeakSet[BatchRunner] = WeakSet()


class BatchRunner:
    """Runs jobs in the order of arrival, merged into batches of at most `max_batch` images × targets.

    With wide batches of the backend, images and targets are bounded by `max_batch` each. With `fixed`, batches that are
    not full are filled with copies of their first image.

    At most `queue` images wait. A job that is larger than the whole queue is accepted if no other job waits.
    """

    def __init__(self, backend: Backend, *, max_batch: int, queue: int, fixed: bool = False) -> None:
        self._backend = backend
        self._fixed = fixed
        self._max_batch = max_batch
        self._queue = queue
        self._lock = threading.RLock()  # a signal handler may call the client while its thread has the lock
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._started: deque[tuple[list[Job], Callable[[], Any] | BcosError]] = deque()
        self._want_room: set[Pending] = set()
        self._closed = False
        self._ended: Pending | None = None
        self._closing = False
        self._abandoned = False
        self._watchers: list[Callable[[int], None]] = []
        self._process = os.getpid()
        self._thread = DaemonThreads(backend.runs_at_once, _THREAD)
        _runners.add(self)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting(self) -> int:
        """The number of images that wait for the device."""
        with self._lock:
            return sum(len(job.images) for job in self._waiting)

    def watch(self, watcher: Callable[[int], None]) -> None:
        """Call this with the number of images of each batch, in the thread of the device."""
        self._watchers.append(watcher)

    def images_at_once(self, targets: int) -> int:
        """The number of images in a full batch if each image has this many targets."""
        return self._max_batch if self._backend.wide_batches else max(1, self._max_batch // max(1, targets))

    @property
    def takes_pixels(self) -> bool:
        """Whether images may be pixels instead of encoded."""
        return self._backend.takes_pixels

    def check_room(self) -> None:
        """Raise `QueueFullError` or `ClientClosedError` before any image of a call is decoded."""
        with self._lock:
            self._refuse_if_closed()
            if not self._has_room(1):
                raise queue_full()

    def submit(self, job: Job, *, wait: bool) -> None:
        """Queue a job. If the queue is full, wait for room until the deadline, or raise `QueueFullError` at once."""
        while True:
            room = Pending()
            with self._lock:
                self._refuse_if_closed()
                if self._has_room(len(job.images)):
                    # Before the job waits: if an interrupt comes between the two, the thread finds nothing to do.
                    self._thread.submit(self._run_next)
                    self._waiting.append(job)
                    return
                if not wait:
                    raise queue_full()
                self._want_room.add(room)
            try:
                if not room.wait(job.deadline.remaining()):
                    raise deadline_exceeded()
            finally:
                self._want_room.discard(room)

    def close(self, deadline: Deadline) -> None:
        """Refuse new jobs, run those that wait, and close the backend. Always returns, soon after the deadline.

        At the deadline, waiting jobs get a `ClientClosedError` and the running batch is told to stop. If it does not,
        its thread is abandoned: the thread closes the backend if the run ever ends.
        """
        with self._lock:
            self._closed = True
            self._tell_of_room()
            if self._ended is None:
                self._ended = Pending()
            if not self._closing:  # also if an interrupt ended an earlier call before this line
                # The thread of the last run closes the backend, so that nothing is freed while a run uses it.
                self._thread.submit(self._close_if_idle)
            self._thread.close()
        if self._abandoned:
            return
        if not self._ended.wait(deadline.remaining()) and not self._stop(self._ended):
            self._abandoned = True
            log.warning(
                "the client is closed, but its run on %s has not ended; the thread %s-1 is left behind with its memory",
                self._backend.device,
                _THREAD,
            )
        elif isinstance(self._ended.value, BcosError):
            raise self._ended.value

    def _stop(self, ended: Pending) -> bool:
        """Drop all jobs and tell the running batch to stop. Return whether it did."""
        with self._lock:
            jobs = [*self._waiting, *self._running]
            self._waiting.clear()
        for job in jobs:
            job.done.set(client_closed())
        end = time.monotonic() + _SECONDS_TO_STOP
        while not ended.is_set and time.monotonic() < end:
            self._backend.stop()  # again and again: a run may begin just after it was told to stop
            ended.wait(_SECONDS_BETWEEN_STOPS)
        return ended.is_set

    def exit(self) -> bool:
        """Stop at the exit of the interpreter. Return whether the thread still runs something."""
        if os.getpid() != self._process:  # a forked child does not have the thread
            return False
        self.close(Deadline(0))
        return self._ended is None or not self._ended.is_set

    def _has_room(self, size: int) -> bool:
        return self._fits(size) or (self._drop_expired() and self._fits(size))

    def _fits(self, size: int) -> bool:
        return not self._waiting or sum(len(job.images) for job in self._waiting) + size <= self._queue

    def _drop_expired(self) -> bool:
        """Remove jobs whose deadline has passed. Return whether there were any."""
        expired = [job for job in self._waiting if job.deadline.passed]
        for job in expired:
            self._waiting.remove(job)
            job.done.set(deadline_exceeded())
        return bool(expired)

    def _tell_of_room(self) -> None:
        for room in list(self._want_room):
            room.set(None)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise client_closed()

    def _run_next(self) -> None:
        """Start the next batch, then hand out the one before: the device works while the host does.

        If no job waits, nothing will call this again soon, so the last batch is handed out at once.
        """
        jobs = self._take()
        if not self._backend.overlaps_runs:  # other threads may run batches as well
            if jobs:
                self._hand_out(jobs, as_outcome(self._start, jobs))
        else:
            if jobs:
                self._started.append((jobs, as_outcome(self._start, jobs)))
            with self._lock:
                ahead = 1 if self._waiting else 0
            while len(self._started) > ahead:
                self._hand_out(*self._started.popleft())
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        """Close the backend if `close` was called and no job is left."""
        with self._lock:
            if self._ended is None or self._closing or self._waiting or self._running:
                return
            self._closing = True
        self._ended.set(as_outcome(self._backend.close))

    def _hand_out(self, jobs: list[Job], started: Callable[[], Any] | BcosError) -> None:
        outputs = started if isinstance(started, BcosError) else as_outcome(started)
        start = 0
        for job in jobs:
            part = slice(start, start + len(job.images))
            start = part.stop
            job.done.set(outputs if isinstance(outputs, BcosError) else outputs[part])
        with self._lock:
            self._running = [job for job in self._running if job not in jobs]

    def _take(self) -> list[Job]:
        """Move the first job, and later jobs of its kind that fit into the same batch, from waiting to running."""
        with self._lock:
            self._drop_expired()
            taken: list[Job] = []
            images = 0
            for job in self._waiting:
                fits = images + len(job.images) <= self.images_at_once(job.target_count)
                if not taken or (job.kind == taken[0].kind and fits):
                    taken.append(job)
                    images += len(job.images)
            for job in taken:
                self._waiting.remove(job)
            self._running += taken
            self._tell_of_room()
        return taken

    def _start(self, jobs: list[Job]) -> Callable[[], Any]:
        """Start a batch. The returned function waits for its outputs."""
        listed = [image for job in jobs for image in job.images]
        for watcher in self._watchers:
            watcher(len(listed))
        targets = np.array([of_image for job in jobs for of_image in job.targets or ()], np.int64)
        queries = [query for job in jobs for query in job.queries or ()]
        if self._fixed:
            # Runtimes choose other kernels for other batches, which round differently.
            missing = self.images_at_once(jobs[0].target_count) - len(listed)
            listed += listed[:1] * missing
            targets = np.concatenate([targets, *[targets[:1]] * missing])
            queries += queries[:1] * missing
        if queries or jobs[0].relay is not None:
            outputs = self._run_layer(np.stack(listed), targets, queries, jobs[0].relay)
            return lambda: outputs
        if jobs[0].features is not None:
            features = self._backend.features(np.stack(listed), jobs[0].features)
            return lambda: features
        images = ImageList(listed) if self._backend.overlaps_runs else np.stack(listed)
        if not targets.size:
            return self._backend.start_predict(images)
        return self._start_explain(images, targets, jobs[0].weights)

    def _run_layer(self, images: Images, targets: Integers, queries: list[LayerQuery], relay: int | None) -> Any:
        if relay is not None:
            return self._backend.relay(images, targets, relay)
        positions = np.array([[query.position] for query in queries], np.int64)
        directions = np.stack([query.direction[None] for query in queries])
        return self._backend.explain_layer(images, queries[0].layer, positions, directions)

    def _start_explain(
        self, images: Images | ImageList, targets: Integers, weights: bool
    ) -> Callable[[], ExplainOutputs]:
        """Explain targets [B, K]. If K exceeds `max_batch`, the targets are split into several runs."""
        parts = [
            self._backend.start_explain(images, targets[:, start : start + self._max_batch], weights=weights)
            for start in range(0, targets.shape[1], self._max_batch)
        ]
        return lambda: ExplainOutputs.joined([part() for part in parts])


def queue_full() -> QueueFullError:
    return QueueFullError("the queue of the client is full")


@atexit.register
def _exit() -> None:
    """End the runs of clients that were not closed: native code must not run while the interpreter exits."""
    still_running = [runner for runner in list(_runners) if runner.exit()]
    if still_running:
        leave_threads_alone()
