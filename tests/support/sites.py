"""Sites of `bcos-sdk web` behind a plain file server, under a path."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bcos_sdk.errors import MissingExtraError
from bcos_sdk.web import write_site

__all__ = ["SAMPLES", "serving_files", "site_of"]

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serving_files(folder: Path) -> Iterator[str]:
    """The address of Python's own file server for the folder."""
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def site_of(bundle: Any, folder: Path, **options: Any) -> Path:
    """The site of a bundle. The test is skipped if ONNX Runtime Web was not fetched."""
    try:
        return write_site(bundle, folder, **options)
    except MissingExtraError:
        pytest.skip("no ONNX Runtime Web: `make browser` fetches it")
