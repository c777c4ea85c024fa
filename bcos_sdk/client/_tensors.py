"""Calls with the tensors of the graphs: encoded images and encoded targets in, the outputs of the graphs out.

A server of the Open Inference Protocol speaks in these tensors. They go through the same queue as images, so that
requests of both kinds share batches where they can.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import Manifest
from bcos_sdk.client._assemble import Assembler
from bcos_sdk.client._batches import BatchRunner, Job
from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.client._threads import Pending
from bcos_sdk.contract import ExplainOutputs, certificate_scale, certificate_sum, mean_target
from bcos_sdk.errors import BcosError, IncompleteExplanationError, InferenceError, InputError
from bcos_sdk.results import Completeness

__all__ = ["TensorRunner"]

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_LARGEST = float(np.finfo(np.float32).max)
_CONTRACT = "The metadata of the model state the inputs with their shapes."


class TensorRunner:
    """Runs encoded images [B, 6, H, W], with or without targets [B, K], and certifies every explanation."""

    def __init__(self, manifest: Manifest, assembler: Assembler, runner: BatchRunner, most_targets: int) -> None:
        self._manifest = manifest
        self._assembler = assembler
        self._runner = runner
        self._most_targets = most_targets

    async def predict(self, images: Floats, deadline: Deadline) -> Floats:
        """The logits [B, classes]."""
        self._check_images(images, 0)
        logits: Floats = await self._run(Job(list(images), None, False, deadline, done=_arrival()))
        if not np.isfinite(logits).all():
            raise InferenceError("the logits are not finite")
        return logits

    async def explain(
        self, images: Floats, targets: Integers, deadline: Deadline, *, weights: bool
    ) -> tuple[ExplainOutputs, list[Completeness]]:
        """The outputs of the explain graph, and the certificate of each image and target, image by image."""
        self._check_targets(targets, len(images))
        self._check_images(images, targets.shape[1])
        rows = [tuple(map(int, row)) for row in targets]
        outputs: ExplainOutputs = await self._run(Job(list(images), rows, weights, deadline, done=_arrival()))
        certificates = [
            self._certificate(outputs, image, row) for image, row in np.ndindex(len(images), targets.shape[1])
        ]
        for figures in certificates:
            if not figures.passed:
                raise IncompleteExplanationError(
                    f"an explanation is not complete: its terms add up to {figures.sum:.6g}, the logit is "
                    f"{figures.logit:.6g}",
                    source="image",
                    hint="The bundle is damaged, or the device computes wrong results.",
                    completeness=figures,
                )
        return outputs, certificates

    async def _run(self, job: Job) -> Any:
        """The outputs of the job. If the task is cancelled, the job is dropped unless it runs."""
        try:
            self._runner.submit(job, wait=False)
            assert isinstance(job.done, _Arrival)
            outcome = await job.done.outcome(job.deadline)
        finally:
            job.deadline.cancel()
        if isinstance(outcome, BcosError):
            raise outcome
        return outcome

    def _certificate(self, outputs: ExplainOutputs, image: int, row: int) -> Completeness:
        contributions, terms = outputs.contributions[image, row], outputs.bias_terms[image, row].astype(np.float64)
        logits, index = outputs.logits[image], int(outputs.classes[image, row])
        is_mean = index == mean_target(self._manifest.classes)
        return Completeness(
            logit=float(logits.mean(dtype=np.float64) if is_mean else logits[index]),
            sum=certificate_sum(contributions, terms),
            scale=float(certificate_scale(contributions, terms, logits, is_mean)),
            tolerance=self._assembler.tolerance,
            precision=self._assembler.precision,
        )

    def _check_images(self, images: Floats, targets: int) -> None:
        expected = self._manifest.input.shape
        if images.dtype != np.float32 or images.ndim != 4 or images.shape[1:] != expected:
            raise InputError(
                f"image is {images.dtype} {list(images.shape)}, expected float32 [images, "
                f"{', '.join(map(str, expected))}]",
                source="image",
                hint=_CONTRACT,
            )
        most = self._runner.images_at_once(targets)
        if not 1 <= len(images) <= most:
            raise InputError(
                f"there are {len(images)} images, expected 1 to {most}"
                + (f" with {targets} targets each" if targets > 1 else ""),
                source="image",
                hint="Send them in several requests. They are computed together all the same.",
            )
        # NaN and numbers outside [0, 1] are no encoded picture. min and max of an array with NaN are NaN.
        low, high = float(images.min()), float(images.max())
        least, largest = (-_LARGEST, _LARGEST) if self._manifest.input.channels == "none" else (0, 1)
        if not (low >= least and high <= largest):
            raise InputError(
                f"image has values from {low:g} to {high:g}, expected {least:g} to {largest:g}",
                source="image",
                hint=_CONTRACT,
            )

    def _check_targets(self, targets: Integers, images: int) -> None:
        if targets.dtype != np.int64 or targets.ndim != 2 or len(targets) != images:
            raise InputError(
                f"targets is {targets.dtype} {list(targets.shape)}, expected int64 [{images}, targets]",
                source="targets",
                hint=_CONTRACT,
            )
        if not 1 <= targets.shape[1] <= self._most_targets:
            raise InputError(
                f"there are {targets.shape[1]} targets for each image, expected 1 to {self._most_targets}",
                source="targets",
                hint=_CONTRACT,
            )
        lowest, highest = -self._manifest.ranks, mean_target(self._manifest.classes)
        if targets.min() < lowest or targets.max() > highest:
            raise InputError(
                f"targets has values from {targets.min()} to {targets.max()}, expected {lowest} to {highest}",
                source="targets",
                hint="A class is its index, -1 the most likely class; the number of classes is the mean of all logits.",
            )


class _Arrival(Pending):
    """A value that a thread sets and a task of the event loop awaits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        super().__init__(then=self._wake)

    async def outcome(self, deadline: Deadline) -> Any:
        """The value, or the error if it is not set before the deadline."""
        remaining = deadline.remaining()
        timer = None if remaining is None else self._loop.call_later(remaining, self._event.set)
        try:
            await self._event.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return self.value if self.is_set else deadline_exceeded()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._event.set)


def _arrival() -> Pending:
    return _Arrival()
