"""What happens to a request before its route sees it: id, token, bounded body, bounded number, metrics, log.

Requests for inference on tensors come often and small. They are answered here: FastAPI's search for the route and its
parameters takes as long as all the rest of such a request.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bcos_sdk._logs import log
from bcos_sdk._open_inference import HEADER_LENGTH
from bcos_sdk.serve._faults import HttpError
from bcos_sdk.serve._protocol_v2 import answer_inference, inference_path
from bcos_sdk.serve._request_ids import HEADER, request_id_from, request_id_of_this_task
from bcos_sdk.serve._service import Service

__all__ = ["Gate"]

_OPEN = ("/v2/health/", "/page/")
_NOT_OPEN = ("/page/info", "/page/samples/")
_OPEN_EXACTLY = ("/", "/v2", "/docs", "/openapi.json")
_UNKNOWN_ROUTE = "unknown"
_INFERENCE = SimpleNamespace(path="/v2/models/{model}/infer")
"""What metrics call the route of an inference request that is answered here."""

Value = TypeVar("Value")


class Gate:
    """ASGI middleware. It reads the whole body, so that no route can hold a slot for a body that does not arrive."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self._app = app
        self._service = service
        self._settings = service.settings
        self._metrics = service.metrics
        self._token = token
        self._admitted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        request_id = request_id_from(headers.get(HEADER.encode()))
        request_id_of_this_task.set(request_id)
        began = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER.encode(), request_id.encode())]
            await send(message)

        try:
            await self._answer(scope, headers, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
            seconds = time.perf_counter() - began
            self._metrics.requests.labels(route, str(status or 499)).inc()  # 499: the caller went away
            self._metrics.seconds.labels(route).observe(seconds)
            fields = {"method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 6)}
            log.info("%s %s %d %.1f ms", *list(fields.values())[:3], seconds * 1e3, extra={"fields": fields})

    async def _answer(self, scope: Scope, headers: dict[bytes, str], receive: Receive, send: Send) -> None:
        try:
            self._check_token(scope["path"], headers)
            if scope["method"] in ("GET", "HEAD", "OPTIONS"):
                await self._app(scope, receive, send)
                return
            self._check_length(headers)
            if self._admitted >= self._settings.queue:
                raise HttpError(503, "queue_full", "the server has as many requests as it takes at once", _CLOSE)
        except HttpError as fault:
            await fault.response(scope, receive, send)
            return
        self._count(1)
        try:
            try:
                body = await _within(self._settings.body_seconds, self._body(receive))
            except asyncio.TimeoutError:
                raise _stalled(self._settings.body_seconds) from None
            if body is None:  # the caller went away
                return
            asked = inference_path(scope["path"]) if scope["method"] == "POST" else None
            if asked is None:
                await self._app(scope, _replay(body, receive), send)
                return
            scope["route"] = _INFERENCE
            length = headers.get(HEADER_LENGTH.encode())
            response = await answer_inference(self._service, *asked, body, length)
            await response(scope, receive, send)
        except HttpError as fault:
            await fault.response(scope, receive, send)
        finally:
            self._count(-1)

    def _check_token(self, path: str, headers: dict[bytes, str]) -> None:
        is_open = path in _OPEN_EXACTLY or (path.startswith(_OPEN) and not path.startswith(_NOT_OPEN))
        if self._token is None or is_open:
            return
        scheme, _, given = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise HttpError(
                401, "unauthorized", "this server needs a bearer token", {"WWW-Authenticate": "Bearer"} | _CLOSE
            )

    def _check_length(self, headers: dict[bytes, str]) -> None:
        stated = headers.get(b"content-length", "")
        if stated.isdecimal() and int(stated[:20]) > self._settings.max_body:
            raise self._too_large()

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, None if the caller went away. Bytes are counted as they arrive: their number may be a lie."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > self._settings.max_body:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> HttpError:
        return HttpError(
            413, "body_too_large", f"the body of a request can have {self._settings.max_body:,} bytes", _CLOSE
        )

    def _count(self, change: int) -> None:
        self._admitted += change
        self._metrics.admitted.inc(change)


async def _within(seconds: float, work: Coroutine[Any, Any, Value]) -> Value:
    """Await the work in this task, or raise `asyncio.TimeoutError`. `asyncio.wait_for` would make a task of its own."""
    task = asyncio.current_task()
    assert task is not None
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        return await work
    except asyncio.CancelledError:
        if not expired:
            raise
        if hasattr(task, "uncancel"):  # Python 3.11
            task.uncancel()
        raise asyncio.TimeoutError from None
    finally:
        timer.cancel()


# What follows on the connection is the rest of a body that nobody reads.
_CLOSE = {"Connection": "close"}


def _stalled(seconds: float) -> HttpError:
    return HttpError(408, "body_timeout", f"the body did not arrive within {seconds:g} seconds", _CLOSE)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body once, and then what the connection says."""
    pending: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed
