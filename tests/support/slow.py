"""A backend that blocks until it is released, and helpers to watch the queue in front of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bcos_sdk import Client, Limits
from bcos_sdk.backends import Device, RunsAtOnce
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._processor import ImageProcessor
from bcos_sdk.contract import CHANNELS, ExplainOutputs, Precision
from support.bundles import LABELS, random_pixels, small_bundle

PIXELS = random_pixels(12)


class SlowBackend(RunsAtOnce):
    """Waits for `go`, then returns zeros. Records the shape of every batch."""

    device = Device(CPU)
    precision: Precision = "fp32"
    takes_pixels = False
    wide_batches = False

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.begun = threading.Event()
        self.closed = False

    def predict(self, images: Any) -> Any:
        self.batches.append((len(images), 0))
        self._wait()
        return np.zeros((len(images), len(LABELS)), np.float32)

    def explain(self, images: Any, targets: Any, *, weights: bool) -> ExplainOutputs:
        self.batches.append(targets.shape)
        self._wait()
        rows, size = targets.shape, images.shape[2:]
        return ExplainOutputs(
            logits=np.zeros((rows[0], len(LABELS)), np.float32),
            classes=np.maximum(targets, 0),
            contributions=np.zeros((*rows, *size), np.float32),
            bias_terms=np.zeros((*rows, 2), np.float32),
            weights=np.zeros((*rows, CHANNELS, *size), np.float32) if weights else None,
        )

    def stop(self) -> None:
        """Does nothing, like a runtime that cannot end a run."""

    def close(self) -> None:
        self.closed = True

    def _wait(self) -> None:
        self.begun.set()
        assert self.go.wait(30)


def processor(backend: Any, *, queue: int = 256, max_batch: int = 8) -> ImageProcessor:
    manifest = small_bundle().manifest
    return ImageProcessor(manifest, backend, max_batch=max_batch, on_incomplete="raise", limits=Limits(queue=queue))


def start_predicting(shared: ImageProcessor, images: Iterable[Any]) -> Iterator[Any]:
    """Predictions that are computed as they are consumed."""
    return shared.predictions(images, Deadline(None), top_k=1)


def predict(shared: ImageProcessor, count: int = 1, seconds: float | None = None) -> list[Any]:
    return [outcome for _, outcome in shared.predictions(PIXELS[:count], Deadline(seconds), top_k=1)]


def explain(shared: ImageProcessor, targets: Any, count: int = 1, *, weights: bool = False) -> list[Any]:
    outcomes = shared.explanations(PIXELS[:count], Deadline(None), targets=targets, top_k=1, weights=weights)
    return [outcome for _, outcome in outcomes]


def waiting(shared: ImageProcessor) -> int:
    """The number of images in the queue."""
    return sum(len(job.images) for job in shared._runner._waiting)


def is_closing(shared: ImageProcessor) -> bool:
    return shared._runner.closed


class SlowClient(Client):
    """A client with a `SlowBackend`. `queue` bounds the async calls only; the queue of images is large."""

    def __init__(self, backend: SlowBackend, queue: int) -> None:
        super().__init__(small_bundle().path, device="cpu", limits=Limits(queue=queue))
        self._processor.close(Deadline(None))
        self._processor = processor(backend, queue=10_000)
