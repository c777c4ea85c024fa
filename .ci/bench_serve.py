"""Measure `bcos-sdk serve` on loopback: `make bench-serve`. Writes docs/serving.json and the table in docs/serving.md.

Throughput is compared with the bare engine: the same graph in the same runtime with the same number of threads, in a
process of its own, on full batches. Both take turns of a few seconds, so that other work on the machine slows both. Two
ratios are reported. One is of images per second. The other is of CPU time per image, where the server's counts all of
its threads: it does not depend on what else runs, and includes work that a second core does beside the engine.

Callers send one image per request in the Open Inference Protocol with binary tensors, each on one connection.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CALLERS = 32
_TICK = os.sysconf("SC_CLK_TCK")
_BARE = """
import json, sys, time
import numpy as np
from bcos_sdk.backends import open_backend
from bcos_sdk.bundle import find_bundle
bundle = find_bundle(sys.argv[1])
backend = open_backend(bundle, "cpu", threads=int(sys.argv[2]))
batch = bundle.manifest.max_batch
colours = np.random.default_rng(0).random((batch, 3, *bundle.manifest.input.size), np.float32)
images, targets = np.concatenate([colours, 1 - colours], axis=1), np.full((batch, 1), -1)
runs = {"predict": lambda: backend.predict(images), "explain": lambda: backend.explain(images, targets, weights=False)}
for run in runs.values():
    run()
for line in sys.stdin:
    kind, seconds = line.split()
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < wall + float(seconds):
        runs[kind]()
        count += batch
    print(json.dumps([count, time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
"""


class Bare:
    """The engine in a process of its own."""

    def __init__(self, model: str, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BARE, model, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, kind: str, seconds: float) -> tuple[float, float]:
        """Images per second, and seconds of CPU time per image."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {seconds}\n")
        self._process.stdin.flush()
        count, wall, cpu = json.loads(self._process.stdout.readline())
        return count / wall, cpu / count

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Server:
    """`bcos-sdk serve` as a process."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def cpu(self) -> float:
        """Seconds of CPU time of all threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def served(model: str, threads: int) -> Iterator[Server]:
    program = "from bcos_sdk.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        program,
        "serve",
        model,
        "--name",
        "net",
        "--port",
        "0",
        "--device",
        "cpu",
        "--timeout",
        "600",
    ]
    process = subprocess.Popen(
        [*command, "--threads", str(threads)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        server = Server(process, int(found[1]))
        while not _is_ready(server.port):
            time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            plain.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return plain.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def request_for(kind: str, size: tuple[int, int]) -> bytes:
    """An inference request with one image, as bytes of HTTP."""
    colours = np.random.default_rng(1).random((1, 3, *size), np.float32)
    arrays: dict[str, Any] = {"image": np.concatenate([colours, 1 - colours], axis=1)}
    if kind == "explain":
        arrays["targets"] = np.full((1, 1), -1)
    names = {"float32": "FP32", "int64": "INT64"}
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": names[str(array.dtype)],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([text, *(array.tobytes() for array in arrays.values())])
    path = "/v2/models/net_explain/infer" if kind == "explain" else "/v2/models/net/infer"
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: {len(text)}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Caller:
    """One connection with at most one request on its way."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._began = 0.0
        self._answer = bytearray()

    def send(self, began: float | None = None) -> None:
        """Send a request that was due at `began`, by default now."""
        self._began = time.perf_counter() if began is None else began
        self._answer.clear()
        self.socket.sendall(self._request)

    def receive(self) -> float | None:
        """Seconds from the request to its whole answer; None if there is more to come."""
        part = self.socket.recv(1 << 20)
        assert part, "the server closed the connection"
        self._answer += part
        end = self._answer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._answer[:end]).lower()
        assert head.startswith(b"http/1.1 200 "), head
        length = int(head.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
        return time.perf_counter() - self._began if len(self._answer) == end + 4 + length else None


def load(port: int, request: bytes, seconds: float, rate: float | None = None) -> tuple[float, list[float]]:
    """Requests per second and their times: as fast as 32 callers get answers, or at a steady rate.

    After the time no request is sent, and what was sent is waited for: all CPU time belongs to a counted answer.
    """
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        callers = [Caller(port, request) for _ in range(CALLERS)]
        for caller in callers:
            stack.callback(caller.socket.close)
            selector.register(caller.socket, selectors.EVENT_READ, caller)
        free = list(callers)
        times: list[float] = []
        began = time.perf_counter()
        due = began
        while (now := time.perf_counter()) < began + seconds or len(free) < CALLERS:
            while free and now < began + seconds and (rate is None or due <= now):
                free.pop().send(None if rate is None else due)
                due += 0 if rate is None else 1 / rate
            wait = 0.5 if rate is None or not free else max(0.0, min(0.5, due - time.perf_counter()))
            for key, _ in selector.select(wait):
                if (taken := key.data.receive()) is not None:
                    times.append(taken)
                    free.append(key.data)
        return len(times) / (time.perf_counter() - began), times


def measure(model: str, kinds: list[str], threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """The figures of one model."""
    from bcos_sdk.bundle import find_bundle

    manifest = find_bundle(model).manifest
    figures: dict[str, Any] = {"model": manifest.model.name, "input": list(manifest.input.size), "threads": threads}
    bare = Bare(model, threads)
    with served(model, threads) as server:
        for kind in kinds:
            request = request_for(kind, manifest.input.size)
            load(server.port, request, min(2.0, seconds))
            pairs = []
            for _ in range(rounds):
                bare_rate, bare_cpu = bare.measure(kind, seconds)
                before = server.cpu()
                rate, times = load(server.port, request, seconds)
                pairs.append((rate / bare_rate, bare_cpu / ((server.cpu() - before) / len(times)), rate))
            throughput, cpu, rate = (statistics.median(column) for column in zip(*pairs, strict=True))
            _, times = load(server.port, request, 2 * seconds, rate / 2)
            p50, p99 = np.percentile(times, [50, 99]) * 1e3
            figures[kind] = {
                "throughput_ratio": round(throughput, 3),
                "cpu_ratio": round(cpu, 3),
                "throughput_ratios": [round(one, 3) for one, *_ in pairs],
                "requests_per_second": round(rate, 1),
                "half_load_p50_ms": round(float(p50), 1),
                "half_load_p99_ms": round(float(p99), 1),
            }
            print(json.dumps({figures["model"]: {kind: figures[kind]}}), flush=True)
    bare.close()
    return figures


def table(document: dict[str, Any]) -> str:
    lines = [
        "| one image per request | throughput ÷ bare engine | CPU time: engine ÷ server | p50 / p99 at half load |",
        "|---|---|---|---|",
    ]
    for figures in document["models"]:
        for kind in (one for one in ("predict", "explain") if one in figures):
            one = figures[kind]
            height, width = figures["input"]
            name = f"`{figures['model']}`, {height}×{width}, {kind}"
            ratios = f"{one['throughput_ratio']:.2f} | {one['cpu_ratio']:.2f}"
            lines.append(f"| {name} | {ratios} | {one['half_load_p50_ms']:.0f} / {one['half_load_p99_ms']:.0f} ms |")
    return "\n".join(lines)


def write(document: dict[str, Any]) -> None:
    """Write the figures, and their table between its marks in docs/serving.md."""
    (ROOT / "docs" / "serving.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    page = ROOT / "docs" / "serving.md"
    before, mark, rest = page.read_text("utf-8").partition("<!-- load: made by .ci/bench_serve.py -->\n")
    assert mark, "docs/serving.md has no place for the table"
    _, end, after = rest.partition("<!-- /load -->")
    page.write_text(f"{before}{mark}{table(document)}\n{end}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="Bundles or names of exports.")
    parser.add_argument("--threads", type=int, default=1, help="Threads of the engine, in both processes.")
    parser.add_argument("--kinds", default="predict,explain", help="What to measure; figures of others are kept.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="Length of a turn.")
    given = parser.parse_args()
    load_before = os.getloadavg()[0]
    models = [
        measure(model, given.kinds.split(","), given.threads, given.rounds, given.seconds) for model in given.models
    ]
    written = ROOT / "docs" / "serving.json"
    known = {one["model"]: one for one in json.loads(written.read_text("utf-8"))["models"]} if written.exists() else {}
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": round(load_before, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }
    for one in models:
        known[one["model"]] = known.get(one["model"], {}) | one | {"rounds": given.rounds, "machine": machine}
    write({"callers": CALLERS, "models": list(known.values())})


if __name__ == "__main__":
    main()
