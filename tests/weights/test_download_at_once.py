"""Several processes download the same file at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

from support.server import CONTENT, DIGEST, Server, serving

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


def download_at_once(server: Server, folder: Path, program: str) -> list[str]:
    """Start all workers, let them download at the same time from a slow server, and return what each prints."""
    server.delay = 1.0
    url = f"http://127.0.0.1:{server.server_port}/net.pth"
    source = WeightsSource(url=url, sha256_prefix=DIGEST[:10], licence="none")
    spec = builtin_registry()["resnet18"].model_copy(update={"weights": source})
    command = [sys.executable, "-c", program, spec.model_dump_json(), str(folder)]
    workers = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(WORKERS)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [worker.communicate(timeout=120)[0] for worker in workers]


def test_processes_that_start_together_download_once(tmp_path: Path) -> None:
    with serving() as server:
        assert download_at_once(server, tmp_path, WORKER) == [f"{len(CONTENT)}\n"] * WORKERS
        assert len(server.requests) == 1
    assert {path.suffix for path in tmp_path.iterdir()} - {".lock", ".sha256"} == {".pth"}


def test_without_a_lock_they_download_more_than_once(tmp_path: Path) -> None:
    """Shows that the test above can fail."""
    with serving() as server:
        download_at_once(server, tmp_path, WITHOUT_LOCKS + WORKER)
        assert len(server.requests) > 1
