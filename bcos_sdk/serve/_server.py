"""Run a server with uvicorn until it is told to end. SIGTERM and Ctrl-C finish what was accepted, then close."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import tempfile
from collections.abc import Callable
from typing import Any

from bcos_sdk._extras import require
from bcos_sdk.errors import OutputError
from bcos_sdk.serve._log_format import configure_logs
from bcos_sdk.serve._metrics import MULTIPROCESS_VARIABLE
from bcos_sdk.serve._service import Service
from bcos_sdk.serve._settings import SETTINGS_VARIABLE, TOKEN_VARIABLE, ServeSettings

__all__ = ["run_server"]

_BACKLOG = 1024
_KEEP_ALIVE_SECONDS = 75
_LARGEST_HEADER = 64 << 10
_HEALTHCHECK_SECONDS = 30  # a busy machine may take this long to start a process
_APP = "bcos_sdk.serve._app:app_of_worker"


def run_server(settings: ServeSettings, announce: Callable[[str], None]) -> None:
    """Serve until a signal. `announce` gets the address as soon as the port is bound: port 0 chooses a free one.

    The error is raised that the model cannot be served, after the server has closed.
    """
    require("uvicorn", "httptools", "python_multipart", purpose="Serving")
    listener = _bound(settings)
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    settings = settings.model_copy(update={"address": address})
    with contextlib.closing(listener):
        configure_logs(settings.log_format)
        announce(address)
        if settings.workers > 1:
            _run_workers(settings, listener)
        else:
            _run_here(settings, listener)


def _run_here(settings: ServeSettings, listener: socket.socket) -> None:
    """Serve in this process. It answers that it is alive while the model is loaded."""
    import uvicorn

    from bcos_sdk.serve._app import create_app

    app = create_app(settings, token=os.environ.get(TOKEN_VARIABLE) or None)
    server = uvicorn.Server(uvicorn.Config(app, **_options(settings)))
    service: Service = app.state.service
    service.on_failure = lambda: setattr(server, "should_exit", True)
    server.run(sockets=[listener])
    if service.failure is not None:
        raise service.failure


def _run_workers(settings: ServeSettings, listener: socket.socket) -> None:
    import uvicorn

    from bcos_sdk.serve._workers import run_workers

    with contextlib.ExitStack() as stack:
        # The metrics before prometheus_client is imported in the workers: it reads the variable then.
        figures = stack.enter_context(tempfile.TemporaryDirectory(prefix="bcos-serve-"))
        for name, value in ((SETTINGS_VARIABLE, settings.model_dump_json()), (MULTIPROCESS_VARIABLE, figures)):
            os.environ[name] = value
            stack.callback(os.environ.pop, name, None)
        run_workers(uvicorn.Config(_APP, factory=True, workers=settings.workers, **_options(settings)), listener)


def _options(settings: ServeSettings) -> dict[str, Any]:
    return {
        "log_config": None,
        "access_log": False,  # the gate logs requests, with their ids
        "server_header": False,
        "proxy_headers": False,  # nothing here uses the address of a caller
        "backlog": _BACKLOG,
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": settings.drain_seconds,
        "timeout_worker_healthcheck": _HEALTHCHECK_SECONDS,
        "h11_max_incomplete_event_size": _LARGEST_HEADER,
    }


def _bound(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.set_inheritable(True)
    except OSError as error:
        listener.close()
        is_no_address = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        raise OutputError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            hint="Give --host an address of this machine: 127.0.0.1 for programs here, 0.0.0.0 for everyone."
            if is_no_address
            else "Choose another --port, or 0 for a free one.",
        ) from None
    return listener
