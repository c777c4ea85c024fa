"""An HTTP server of the Open Inference Protocol v2 that a test can make lie, fail, or be slow.

It is written with nothing but the standard library, and runs the graphs of the small bundle.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import Arrays
from support.bundles import small_bundle
from support.places import graph_runner, ports_of

__all__ = ["OddServer", "hang_up", "odd_server", "reply"]

_KINDS = {"FP32": "float32", "INT64": "int64", "UINT8": "uint8"}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass
class OddServer:
    """What the server does. A test changes the attributes while it runs."""

    bundle: Bundle
    run: Callable[[str, Arrays, list[str]], Arrays]
    parameters: dict[str, str]
    """The parameters of the metadata."""
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    golden: bytes | None
    port: int = 0
    binary: bool = True
    config: dict[str, Any] | None = None
    answer_parameters: dict[str, str] = field(default_factory=dict)
    lie: Callable[[Arrays], Arrays] = lambda arrays: arrays
    instead: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    """What to do instead of the next inferences."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each request."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/small"

    @property
    def inferences(self) -> int:
        return sum(path.endswith("/infer") for path, _ in self.requests)


def reply(status: int, body: bytes = b"{}", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer with this status and body."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return send


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.close_connection = True


@contextmanager
def odd_server(port: int = 0) -> Iterator[OddServer]:
    """Run a server of the small bundle that is honest until the test changes it."""
    bundle = small_bundle()
    inputs, outputs = ports_of(bundle)
    golden = bytes(bundle.contents[bundle.manifest.golden])
    parameters = {"bcos_manifest": bundle.manifest.to_json()}
    odd = OddServer(bundle, graph_runner(bundle), parameters, inputs, outputs, golden)

    connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_GET(self) -> None:
            odd.requests.append((self.path, dict(self.headers)))
            _describe(odd, self)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            odd.requests.append((self.path, dict(self.headers)))
            if odd.instead:
                odd.instead.pop(0)(self)
            else:
                _infer(odd, self, body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    odd.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield odd
    finally:
        server.shutdown()
        server.server_close()
        for connection in connections:  # as the end of a process does
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _describe(odd: OddServer, handler: BaseHTTPRequestHandler) -> None:
    def json_reply(document: Any) -> None:
        reply(200, json.dumps(document).encode())(handler)

    def listed(ports: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in ports.items()]

    if handler.path == "/v2":
        json_reply({"name": "odd", "extensions": ["binary_tensor_data"] if odd.binary else []})
    elif handler.path == "/v2/models/small/golden" and odd.golden is not None:
        reply(200, odd.golden)(handler)
    elif handler.path.endswith("/config") and odd.config is not None:
        json_reply(odd.config)
    elif (model := handler.path.removeprefix("/v2/models/")) in odd.outputs:
        inputs = dict(list(odd.inputs.items())[: None if model.endswith("_explain") else 1])
        described = {"name": model, "inputs": listed(inputs), "outputs": listed(odd.outputs[model])}
        json_reply(described | {"parameters": odd.parameters})
    else:
        reply(404, b'{"error": "there is no such model"}')(handler)


def _infer(odd: OddServer, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    size = int(handler.headers.get("Inference-Header-Content-Length", len(body)))
    asked = json.loads(body[:size])
    place = size
    inputs: Arrays = {}
    for one in asked["inputs"]:
        kind = _KINDS[one["datatype"]]
        if odd.binary:
            stated = one["parameters"]["binary_data_size"]
            inputs[one["name"]] = np.frombuffer(body[place : place + stated], kind).reshape(one["shape"])
            place += stated
        else:
            inputs[one["name"]] = np.array(one["data"], kind).reshape(one["shape"])
    found = odd.lie(odd.run(handler.path.split("/")[3], inputs, [one["name"] for one in asked["outputs"]]))
    parts = []
    described: list[dict[str, Any]] = []
    for name, array in found.items():
        entry: dict[str, Any] = {"name": name, "datatype": _NAMES.get(str(array.dtype), "FP64"), "shape": array.shape}
        if odd.binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            parts.append(array.tobytes())
        else:
            entry["data"] = array.tolist()
        described.append(entry)
    text = json.dumps({"model_name": "small", "outputs": described, "parameters": odd.answer_parameters}).encode()
    headers = {"Inference_Header_Content_Length": str(len(text))} if odd.binary else {}
    reply(200, b"".join([text, *parts]), **headers)(handler)
