"""Run a server with uvicorn until it is told to end. SIGTERM and Ctrl-C finish what was accepted, then close."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Callable

from bcos_sdk._extras import require
from bcos_sdk.errors import OutputError
from bcos_sdk.serve._metrics import MULTIPROCESS_VARIABLE
from bcos_sdk.serve._settings import SETTINGS_VARIABLE, ServeSettings

__all__ = ["run_server"]

_BACKLOG = 1024
_KEEP_ALIVE_SECONDS = 75
_LARGEST_HEADER = 64 << 10
_APP = "bcos_sdk.serve._app:app_of_worker"


def run_server(settings: ServeSettings, announce: Callable[[str], None]) -> None:
    """Serve until a signal. `announce` gets the address as soon as the port is bound: port 0 chooses a free one."""
    require("uvicorn", "httptools", "python_multipart", purpose="Serving")
    listener = _bound(settings)
    host, port = listener.getsockname()[:2]
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        os.environ[SETTINGS_VARIABLE] = settings.model_dump_json()
        stack.callback(os.environ.pop, SETTINGS_VARIABLE, None)
        if settings.workers > 1:
            # Before prometheus_client is imported in the workers: it reads the variable then.
            os.environ[MULTIPROCESS_VARIABLE] = stack.enter_context(tempfile.TemporaryDirectory(prefix="bcos-serve-"))
            stack.callback(os.environ.pop, MULTIPROCESS_VARIABLE, None)
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        _run(settings, listener)


def _run(settings: ServeSettings, listener: socket.socket) -> None:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from bcos_sdk.serve._log_format import configure_logs

    configure_logs(settings.log_format)
    config = uvicorn.Config(
        _APP,
        factory=True,
        workers=settings.workers,
        log_config=None,
        access_log=False,  # the gate logs requests, with their ids
        server_header=False,
        proxy_headers=False,  # nothing here uses the address of a caller
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.drain_seconds,
        h11_max_incomplete_event_size=_LARGEST_HEADER,
    )
    if settings.workers > 1:
        Multiprocess(config, sockets=[listener]).run()
    else:
        uvicorn.Server(config).run(sockets=[listener])


def _bound(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.set_inheritable(True)
    except OSError as error:
        listener.close()
        raise OutputError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            hint="Choose another --port, or 0 for a free one.",
        ) from None
    return listener
