"""The model behind the routes: opened and tested before the server is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from fastapi import FastAPI, Request

from bcos_sdk._logs import log
from bcos_sdk.client import Client
from bcos_sdk.errors import BcosError
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained
from bcos_sdk.serve._faults import HttpError, answer_to, status_of
from bcos_sdk.serve._metrics import Metrics
from bcos_sdk.serve._settings import ServeSettings

__all__ = ["Service", "service_of"]


class Service:
    """One client, its metrics and its state. It is ready after the warm-up, which contains the self-test."""

    def __init__(self, settings: ServeSettings, metrics: Metrics, open_client: Callable[..., Client] = Client) -> None:
        self.settings = settings
        self.metrics = metrics
        self.failure: Exception | None = None
        """Why the model cannot be served."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when the model cannot be served, in any thread."""
        self._open_client = open_client
        self._client: Client | None = None
        self._digest = ""

    @property
    def ready(self) -> bool:
        return self._client is not None

    @property
    def client(self) -> Client:
        """The client; an answer with status 503 until it is ready."""
        if self.failure is not None:
            raise HttpError(500, "internal_error", "the model cannot be served; the log of the server has the cause")
        if self._client is None:
            raise HttpError(503, "not_ready", "the model is being loaded and tested")
        return self._client

    @property
    def name(self) -> str:
        return self.settings.name or self.client.manifest.model.name

    @property
    def digest(self) -> str:
        """The SHA-256 of the manifest, which says which model computed an answer."""
        return self._digest

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Open the client beside the event loop, unless it is open; close it after the last answer."""
        opening = None if self.ready else asyncio.ensure_future(asyncio.to_thread(self.open))
        try:
            yield
        finally:
            if opening is not None:
                await opening
            client, self._client = self._client, None
            if client is not None:
                await client.aclose()

    def open(self) -> None:
        """Open and test the model. If that fails, the error is logged and kept in `failure`."""
        try:
            client = self._tested_client()
        except Exception as error:
            self.failure = error
            code = error.code if isinstance(error, BcosError) else "internal_error"
            unexpected = None if isinstance(error, BcosError) else error
            log.error("the model cannot be served: [%s] %s", code, str(error) or repr(error), exc_info=unexpected)
            self.on_failure()
            return
        client.watch_batches(self._batch_ran)
        self._digest = client.exported_manifest.digest
        self._client = client
        address = f" at {self.settings.address}" if self.settings.address else ""
        log.info("ready: %s on %s%s", self.name, client.device, address)

    def _tested_client(self) -> Client:
        limits = Limits(
            bytes=self.settings.max_body,
            pixels=self.settings.max_pixels or Limits().pixels,
            queue=self.settings.queue * 2,
            images=256,
            decoding="isolated",
        )
        client = self._open_client(self.settings.model, limits=limits, **self.settings.client)
        client.warmup()
        return client

    def _batch_ran(self, images: int) -> None:
        self.metrics.batches.observe(images)
        self.update_queue()

    def update_queue(self) -> None:
        """Set the metric of the queue's length to its value now."""
        if self._client is not None:
            self.metrics.waiting.set(self._client.waiting)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn errors of the client into answers. What is the fault of the server is logged with its hint."""
        try:
            yield
        except BcosError as error:
            self.metrics.failed(error)
            if status_of(error) == 500:
                log.error("[%s] %s", error.code, str(error))
            raise answer_to(error) from error

    def certified(self, result: Explained) -> None:
        """Count the certificates of a result."""
        self.metrics.certified(explanation.completeness for explanation in result.explanations)


def service_of(request: Request) -> Service:
    """The service of the app that a request came to."""
    service: Service = request.app.state.service
    return service
