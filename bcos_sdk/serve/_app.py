"""The ASGI application of a server: all routes behind one gate."""

from __future__ import annotations

import os
from collections.abc import Callable

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from uvicorn.config import STARTUP_FAILURE

from bcos_sdk import __version__
from bcos_sdk._logs import log
from bcos_sdk.client import Client
from bcos_sdk.serve import _page, _people, _protocol_v1, _protocol_v2
from bcos_sdk.serve._faults import HttpError
from bcos_sdk.serve._gate import Gate
from bcos_sdk.serve._log_format import configure_logs
from bcos_sdk.serve._metrics import CONTENT_TYPE, Metrics
from bcos_sdk.serve._service import Service, service_of
from bcos_sdk.serve._settings import SETTINGS_VARIABLE, TOKEN_VARIABLE, ServeSettings

__all__ = ["app_of_worker", "create_app"]

_DESCRIPTION = (
    "B-cos networks: classes of images, and how much each pixel adds to the logit. Every explanation adds up."
)


def create_app(
    settings: ServeSettings, *, token: str | None = None, open_client: Callable[..., Client] = Client
) -> FastAPI:
    """The application that serves one model. `open_client` makes the client, with the arguments of `Client`."""
    metrics = Metrics()
    service = Service(settings, metrics, open_client)
    app = FastAPI(
        title="bcos-sdk",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=service.lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from another server
        redoc_url=None,
    )
    app.state.service = service
    for room in (_protocol_v2, _protocol_v1, _people, _page):
        app.include_router(room.router)
    app.add_api_route("/metrics", _metrics, methods=["GET"], summary="Figures for Prometheus", tags=["Operations"])
    app.add_exception_handler(HttpError, _answer_fault)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_unexpected)
    app.add_middleware(Gate, service=service, token=token)
    return app


def app_of_worker() -> FastAPI:
    """The application of a worker process, with the settings from its environment.

    Its model is ready: a worker accepts nothing before, so that its siblings get the requests. uvicorn does not start a
    worker again that ends with its code for a failed start.
    """
    settings = ServeSettings.model_validate_json(os.environ[SETTINGS_VARIABLE])
    configure_logs(settings.log_format)
    app = create_app(settings, token=os.environ.get(TOKEN_VARIABLE) or None)
    service: Service = app.state.service
    service.open()
    if service.failure is not None:
        raise SystemExit(STARTUP_FAILURE)
    return app


def _metrics(request: Request) -> Response:
    service = service_of(request)
    service.update_queue()
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _answer_fault(_request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HttpError)
    return fault.response


def _answer_invalid(_request: Request, error: Exception) -> Response:
    """The first wrong parameter. Its value is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return HttpError(422, "input_invalid", f"{where}: {first['msg']}").response


def _answer_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "request_invalid")
    return HttpError(error.status_code, code, str(error.detail), dict(error.headers or {})).response


def _answer_unexpected(_request: Request, error: Exception) -> Response:
    log.error("unexpected error: %s", repr(error), exc_info=error)
    return HttpError(500, "internal_error", "the server could not compute the answer; its log has the cause").response
