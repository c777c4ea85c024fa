"""A server of the package in a thread, on a free port of loopback, and plain HTTP calls to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import uvicorn

from bcos_sdk import Client
from bcos_sdk.serve import ServeSettings, create_app
from bcos_sdk.testing import FakeClient

LABELS = ("cat", "dog", "fox")


class Answer(NamedTuple):
    """The answer to one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server(NamedTuple):
    """The port of a running server."""

    port: int

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.call("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.call("POST", path, body, headers)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def fake(**options: Any) -> Callable[..., Client]:
    """What opens a `FakeClient` with these options."""
    defaults = {"labels": LABELS, "input_size": (16, 20)}
    return lambda model, **given: FakeClient(model, **(given | defaults | options))


@contextmanager
def serving(
    open_client: Callable[..., Client] | None = None, *, token: str | None = None, wait: bool = True, **settings: Any
) -> Iterator[Server]:
    """Run a server until the end of the block."""
    chosen = ServeSettings(model="fake", **settings)
    app = create_app(chosen, token=token, open_client=open_client or fake())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=chosen.drain_seconds)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    running = Server(listener.getsockname()[1])
    try:
        while wait and running.get("/v2/health/ready").status != 200:
            time.sleep(0.01)
        yield running
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


def encoded(images: int, size: tuple[int, int] = (16, 20), seed: int = 0) -> Any:
    """Random encoded images [images, 6, H, W]."""
    colours = np.random.default_rng(seed).random((images, 3, *size), np.float32)
    return np.concatenate([colours, 1 - colours], axis=1)
