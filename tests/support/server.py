"""An HTTP server for download tests that can truncate, send wrong lengths, and delay."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["CONTENT", "DIGEST", "Server", "serving"]

CONTENT = bytes(range(256)) * 4096 * 3  # 3 MiB: more than one chunk
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT. The attributes set what goes wrong, and record the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.status = 200
        self.ranges = True
        self.length: str | None = "true"  # the Content-Length header: true, absent (None) or this text
        self.open = threading.Event()  # no response is sent while this is cleared
        self.open.set()
        self.delay = 0.0  # seconds between a request and its response
        self.cut_after: list[int | None] = []  # per request: the connection ends after this many bytes
        self.requests: list[str | None] = []  # per request: its Range header


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        requested = self.headers["Range"]
        server.requests.append(requested)
        server.open.wait()
        time.sleep(server.delay)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(requested.removeprefix("bytes=").removesuffix("-")) if requested and server.ranges else 0
        if start and start >= len(server.content):
            self.send_error(416)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if server.length is not None:
            self.send_header("Content-Length", str(len(body)) if server.length == "true" else server.length)
        self.end_headers()
        cut = server.cut_after.pop(0) if server.cut_after else None
        self.wfile.write(body[:cut])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server until the end of the block."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
