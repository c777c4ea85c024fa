"""A long run of requests against `bcos-sdk serve`, good and hostile ones, with the use of resources of the server.

`python -m support.serve_soak REQUESTS [--json FILE]` starts a server of the built-in model as a process of its own, and
sends the requests from 16 threads. Every answer is compared with what the model computes in this process: a wrong
answer, an untyped failure or an unexpected status ends the run with an error.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bcos_sdk import Client
from bcos_sdk.bundle import BUILTIN_MODEL
from support.soak import Usage, in_threads

__all__ = ["ServeSoak", "run"]

THREADS = 16
PHASES = 10
HOSTILE = 0.05
_TOLERANCE = 1e-4
_DATATYPES = {"float32": "FP32", "int64": "INT64"}


@dataclass
class ServeSoak:
    """The figures of a run. `usage[i]` was measured after the i-th tenth of the requests."""

    requests: int
    seconds: float = 0.0
    usage: list[Usage] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    """How many requests ended so: kind of request, status and code."""


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of the built-in model that is ready, and its port."""
    program = "from bcos_sdk.cli import main; main()"
    fixed = ("--port", "0", "--device", "cpu", "--threads", "1")
    command = [sys.executable, "-c", program, "serve", BUILTIN_MODEL, *fixed, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        port = int(found[1])
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with suppress(OSError):
                if called(port, "/v2/health/ready")[0] == 200:
                    break
            time.sleep(0.2)
        yield process, port
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


class Caller:
    """One connection that is kept, as a program in production keeps it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, Any]:
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return answer.status, answer.read(), answer.headers
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def send_raw(self, content: bytes) -> bytes:
        """Send bytes that are no valid request, and read what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as plain:
            plain.sendall(content)
            plain.shutdown(socket.SHUT_WR)
            answer = b""
            with suppress(OSError):
                while part := plain.recv(1 << 16):
                    answer += part
            return answer


def called(port: int, path: str) -> tuple[int, bytes]:
    """Status and body of a GET over a connection of its own."""
    with closing(Caller(port)) as caller:
        status, contents, _ = caller.call("GET", path)
        return status, contents


def photograph(seed: int) -> bytes:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((120, 90)).save(file, ("JPEG", "PNG", "WEBP")[seed % 3])
    return file.getvalue()


def tensor_body(**arrays: Any) -> tuple[bytes, dict[str, str]]:
    described = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": _DATATYPES[str(array.dtype)],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    text = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([text, *(np.ascontiguousarray(array).tobytes() for array in arrays.values())])
    return body, {"Inference-Header-Content-Length": str(len(text))}


class Requests:
    """Requests with known answers, and hostile ones with the statuses that they may get."""

    def __init__(self) -> None:
        self.pictures = [photograph(seed) for seed in range(24)]
        colours = np.random.default_rng(0).random((24, 3, 32, 32), np.float32)
        self.encoded = np.concatenate([colours, 1 - colours], axis=1)
        with Client(BUILTIN_MODEL, device="cpu", threads=1) as client:
            self.of_pictures = [one.classes[0] for one in client.predict(self.pictures)]
            rows = client.predict(list(self.encoded), top_k=10)
        self.logits = np.array(
            [[score.logit for score in sorted(row.classes, key=lambda one: one.index)] for row in rows]
        )
        giant = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (1 << 30).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
        body, headers = tensor_body(image=self.encoded[:1])
        nan, nan_headers = tensor_body(image=np.full((1, 6, 32, 32), np.nan, np.float32))
        many, many_headers = tensor_body(image=np.repeat(self.encoded, 2, axis=0))
        infer = f"/v2/models/{BUILTIN_MODEL}/infer"
        self.hostile: list[tuple[str, bytes, dict[str, str], set[int]]] = [
            ("/predict", b"", {}, {422}),
            ("/predict", b"not an image", {}, {415}),
            ("/predict", self.pictures[0][:300], {}, {415}),
            ("/explain?target=unicorn", self.pictures[1], {}, {422}),
            ("/explain?top_k=0", self.pictures[1], {}, {422}),
            ("/predict", giant, {}, {413, 415}),
            ("/predict", bytes(17 << 20), {}, {413}),
            (infer, b"{" * 2000, {}, {400}),
            (infer, body[:-5], headers, {400}),
            (infer, body, {"Inference-Header-Content-Length": "99999999"}, {400}),
            (infer, nan, nan_headers, {422}),
            (infer, many, many_headers, {422}),
            ("/v2/models/other/infer", body, headers, {404}),
            (f"/v1/models/{BUILTIN_MODEL}:predict", b'{"instances": [{"b64": "!"}]}', {}, {400}),
            ("/predict", b"--x\r\nbroken", {"Content-Type": "multipart/form-data; boundary=x"}, {400, 422}),
        ]

    def good(self, caller: Caller, chance: random.Random) -> str:
        """Send a request and compare its answer."""
        which = chance.randrange(24)
        way = chance.randrange(4)
        if way <= 1:
            path = ("/predict", "/explain")[way]
            status, contents, _ = caller.call("POST", path, self.pictures[which])
            if status == 200:
                found = json.loads(contents)
                prediction = found["prediction"] if way else found
                best = prediction["classes"][0]
                expected = self.of_pictures[which]
                assert best["index"] == expected.index, (path, best, expected)
                assert abs(best["logit"] - expected.logit) <= _TOLERANCE * max(1, abs(expected.logit))
                assert not way or found["explanations"][0]["completeness"]["passed"] is True
            return _outcome(path, status, contents)
        images = self.encoded[[which, (which + 1) % 24][: chance.randint(1, 2)]]
        model = BUILTIN_MODEL + ("_explain" if way == 3 else "")
        inputs = {"image": images} | ({"targets": np.full((len(images), 1), -1)} if way == 3 else {})
        body, headers = tensor_body(**inputs)
        status, contents, answered = caller.call("POST", f"/v2/models/{model}/infer", body, headers)
        if status == 200:
            tensors = _tensors(contents, int(answered["inference-header-content-length"]))
            logits = self.logits[[which, (which + 1) % 24][: len(images)]]
            assert np.abs(tensors["logits"] - logits).max() <= _TOLERANCE * max(1, np.abs(logits).max())
            if way == 3:
                total = tensors["contributions"].sum((-1, -2)) + tensors["bias_terms"].sum(-1)
                assert np.allclose(total[:, 0], tensors["logits"].max(1), rtol=1e-3, atol=1e-3)
        return _outcome("infer", status, contents)

    def bad(self, caller: Caller, chance: random.Random) -> str:
        """Send a hostile request. It must get one of the expected statuses with an error of the server's schema."""
        which = chance.randrange(len(self.hostile) + 1)
        if which == len(self.hostile):
            answer = caller.send_raw(chance.randbytes(200) + b"\r\n\r\n")
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:80]
            return "hostile bytes"
        path, body, headers, statuses = self.hostile[which]
        try:
            status, contents, _ = caller.call("POST", path, body, headers)
        except (OSError, http.client.HTTPException):
            assert 413 in statuses, path  # the server answers and closes before it has read the body
            return "hostile connection closed"
        assert status in statuses | {503}, (path, status, contents[:200])
        return "hostile " + _outcome(path.partition("?")[0], status, contents)


def _outcome(kind: str, status: int, contents: bytes) -> str:
    """The kind of request and how it ended. A failure must have a code and say whether it may be tried again."""
    if status == 200:
        return f"{kind} 200"
    failure = json.loads(contents)
    assert failure["code"], contents
    assert isinstance(failure["retryable"], bool), contents
    assert status not in (500, 502), contents
    return f"{kind} {status} {failure['code']}"


def _tensors(contents: bytes, header: int) -> dict[str, Any]:
    found, place = {}, header
    for one in json.loads(contents[:header])["outputs"]:
        size = one["parameters"]["binary_data_size"]
        kind = np.float32 if one["datatype"] == "FP32" else np.int64
        found[one["name"]] = np.frombuffer(contents[place : place + size], kind).reshape(one["shape"])
        place += size
    return found


def usage_of(process: int) -> Usage:
    """What another process and its children hold."""
    children = _children(process)
    memory = sum(_pages(one) for one in (process, *children)) * os.sysconf("SC_PAGE_SIZE")
    folder = Path("/proc") / str(process)
    return Usage(memory, len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir())), len(children))


def _children(process: int) -> list[int]:
    tasks = (Path("/proc") / str(process) / "task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _pages(process: int) -> int:
    return int((Path("/proc") / str(process) / "statm").read_text().split()[1])


def run(requests: int) -> ServeSoak:
    """Send the requests in ten phases, and measure the server after each."""
    prepared = Requests()
    soak = ServeSoak(requests)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with started() as (process, port):
        for phase in range(PHASES):

            def work(number: int, phase: int = phase) -> None:
                chance = random.Random(f"{phase} {number}")
                with closing(Caller(port)) as caller:
                    for _ in range(requests // PHASES // THREADS):
                        send = prepared.bad if chance.random() < HOSTILE else prepared.good
                        counts[send(caller, chance)] += 1

            in_threads(THREADS, work)
            time.sleep(1)  # closed connections leave the server
            soak.usage.append(usage_of(process.pid))
        status, contents = called(port, "/metrics")
        assert status == 200
        assert b"bcos_failed_certificates_total 0.0" in contents
    soak.seconds = time.monotonic() - began
    soak.answers = dict(sorted(counts.items()))
    return soak


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", type=int)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = json.dumps(asdict(run(given.requests)), indent=2)
    if given.json is not None:
        given.json.write_text(figures + "\n", "utf-8")
    print(figures)
