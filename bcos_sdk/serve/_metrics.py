"""The metrics of a server for Prometheus, also the certificates: residuals, and explanations that did not add up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from bcos_sdk.errors import BcosError, ImagesFailedError, IncompleteExplanationError
from bcos_sdk.results import Completeness, Failure

__all__ = ["CONTENT_TYPE", "MULTIPROCESS_VARIABLE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""With it, prometheus-client keeps the figures in files, so that any worker can report those of all."""

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_RESIDUALS = (1e-8, 3e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 1e-3)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The figures of one process. Each server has a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry}
        self.requests = Counter("bcos_requests", "Answered requests.", ("route", "code"), **own)
        self.seconds = Histogram(
            "bcos_request_seconds", "Seconds from the request to its answer.", ("route",), buckets=_SECONDS, **own
        )
        self.batches = Histogram("bcos_batch_images", "Images in each run of a graph.", buckets=_SIZES, **own)
        self.waiting = Gauge(
            "bcos_queue_images", "Images that wait for the device.", multiprocess_mode="livesum", **own
        )
        self.admitted = Gauge("bcos_requests_in_progress", "Requests with a body.", multiprocess_mode="livesum", **own)
        self._residuals = Histogram(
            "bcos_completeness_relative_residual",
            "|logit - sum of the terms| / scale of each explanation.",
            buckets=_RESIDUALS,
            **own,
        )
        self._failed = Counter("bcos_failed_certificates", "Explanations that do not add up to their logit.", **own)

    def certified(self, certificates: Iterable[Completeness]) -> None:
        """Count explanations that are complete."""
        for figures in certificates:
            self._residuals.observe(figures.relative_residual)

    def failed(self, error: BcosError) -> None:
        """Count the explanations that this error says are incomplete."""
        if isinstance(error, IncompleteExplanationError):
            self._failed.inc()
            self._residuals.observe(error.completeness.relative_residual)
        elif isinstance(error, ImagesFailedError):
            codes = [result.code for result in error.results if isinstance(result, Failure)]
            self._failed.inc(codes.count(IncompleteExplanationError.code))

    def text(self) -> bytes:
        """All figures as Prometheus reads them; with several workers, those of all."""
        registry = self._registry
        if MULTIPROCESS_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        text: bytes = generate_latest(registry)
        return text
