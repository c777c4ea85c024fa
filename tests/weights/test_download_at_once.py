"""Several processes download the same file at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

from support.server import CONTENT, DIGEST, Server, serving
from support.waiting import until

from bcos_sdk.registry import WeightsSource, builtin_registry

WORKERS = 3
WORKER = """
import sys
from pathlib import Path
from bcos_sdk.registry import ModelSpec
from bcos_sdk.weights import download_weights
spec = ModelSpec.model_validate_json(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(download_weights(spec, folder=Path(sys.argv[2])).stat().st_size)
"""
WITHOUT_LOCKS = """
import contextlib, filelock
filelock.FileLock = lambda path: contextlib.nullcontext()
"""


def start_workers(server: Server, folder: Path, program: str) -> list[subprocess.Popen[str]]:
    """Start all workers, and let them download at the same time."""
    url = f"http://127.0.0.1:{server.server_port}/net.pth"
    source = WeightsSource(url=url, sha256_prefix=DIGEST[:10], licence="none")
    spec = builtin_registry()["resnet18"].model_copy(update={"weights": source})
    command = [sys.executable, "-c", program, spec.model_dump_json(), str(folder)]
    workers = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) for _ in range(WORKERS)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return workers


def test_processes_that_start_together_download_once(tmp_path: Path) -> None:
    with serving() as server:
        server.delay = 1.0
        workers = start_workers(server, tmp_path, WORKER)
        assert [worker.communicate(timeout=120) for worker in workers] == [(f"{len(CONTENT)}\n", "")] * WORKERS
        assert len(server.requests) == 1
    assert {path.suffix for path in tmp_path.iterdir()} - {".lock", ".sha256"} == {".pth"}


def test_without_a_lock_they_disturb_each_other(tmp_path: Path) -> None:
    """Shows that the test above can fail: each worker either sends a request or finds the partial file of another."""
    with serving() as server:
        server.open.clear()
        workers = start_workers(server, tmp_path, WITHOUT_LOCKS + WORKER)
        until(lambda: len(server.requests) + sum(worker.poll() is not None for worker in workers) == WORKERS)
        server.open.set()
        errors = [worker.communicate(timeout=120)[1] for worker in workers]
        assert len(server.requests) > 1 or sum("File exists" in error for error in errors) == WORKERS - 1
