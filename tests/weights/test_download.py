"""Downloads from a real HTTP server that truncates, lies, cuts the line or is not there."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE

import pytest

from bcos_sdk.errors import DownloadError, HashMismatchError, NoPublishedWeightsError
from bcos_sdk.registry import ModelSpec, WeightsSource, builtin_registry
from bcos_sdk.weights import _download, download_weights

CONTENT = bytes(range(256)) * 4096 * 3  # 3 MiB: more than one chunk
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT; the attributes say what goes wrong, and what was asked is kept."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.status = 200
        self.ranges = True
        self.cut_after: list[int | None] = []  # per request: how many bytes before the line goes dead
        self.requests: list[str | None] = []  # per request: its Range header


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers["Range"]
        server.requests.append(asked)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if start and start >= len(server.content):
            self.send_error(416)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = server.cut_after.pop(0) if server.cut_after else None
        self.wfile.write(body[:cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_PAUSE_SECONDS", 0.0)


def spec_for(port: int, digest: str = DIGEST) -> ModelSpec:
    source = WeightsSource(
        url=f"http://127.0.0.1:{port}/release/net-{digest[:10]}.pth",
        sha256_prefix=digest[:10],
        licence="none",
    )
    return builtin_registry()["resnet18"].model_copy(update={"weights": source})


@pytest.fixture
def spec(server: Server) -> ModelSpec:
    return spec_for(server.server_port)


def left_behind(folder: Path) -> set[str]:
    return {path.suffix for path in folder.iterdir()} - {".lock"}


def test_a_download_is_whole_and_kept(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    path = download_weights(spec, folder=tmp_path)
    assert path.read_bytes() == CONTENT
    assert left_behind(tmp_path) == {".pth"}
    assert download_weights(spec, folder=tmp_path) == path
    assert len(server.requests) == 1, "the second call must be answered from the folder"


def test_the_cache_folder_can_be_moved(
    spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "elsewhere"))
    assert download_weights(spec).parent == tmp_path / "elsewhere" / "weights"


def test_a_cut_line_is_resumed(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.cut_after = [1_500_000, 700_000]
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1500000-", "bytes=2200000-"]


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(
    server: Server, spec: ModelSpec, tmp_path: Path
) -> None:
    server.cut_after = [1_000_000, 500_000, 250_000]
    with pytest.raises(DownloadError, match="cut after 1750000 of 3145728 bytes") as caught:
        download_weights(spec, folder=tmp_path)
    assert caught.value.retryable
    assert left_behind(tmp_path) == {".part"}, "nothing may stand under the final name"
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=1750000-"


def test_a_server_without_ranges_starts_again(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.ranges = False
    server.cut_after = [1_000_000]
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("left_over", [b"something else", CONTENT + b"and more"])
def test_a_part_of_another_file_is_thrown_away(spec: ModelSpec, tmp_path: Path, left_over: bytes) -> None:
    assert spec.weights is not None
    (tmp_path / f"{spec.weights.file_name}.part").write_bytes(left_over)
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


def test_a_finished_part_needs_no_transfer(spec: ModelSpec, tmp_path: Path) -> None:
    assert spec.weights is not None
    (tmp_path / f"{spec.weights.file_name}.part").write_bytes(CONTENT)
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


def test_a_wrong_hash_keeps_nothing(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.content = b"<html>Please sign in to the network</html>"
    with pytest.raises(HashMismatchError, match=DIGEST[:10]):
        download_weights(spec, folder=tmp_path)
    assert left_behind(tmp_path) == set()


def test_a_damaged_file_in_the_cache_is_replaced(spec: ModelSpec, tmp_path: Path) -> None:
    path = download_weights(spec, folder=tmp_path)
    path.write_bytes(CONTENT[:-1] + b"!")
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


def test_a_missing_file_is_not_asked_for_again(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DownloadError, match="404") as caught:
        download_weights(spec, folder=tmp_path)
    assert not caught.value.retryable
    assert len(server.requests) == 1
    assert left_behind(tmp_path) == set()


def test_a_busy_server_is_asked_again(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.status = 503
    with pytest.raises(DownloadError, match="503") as caught:
        download_weights(spec, folder=tmp_path)
    assert caught.value.retryable
    assert len(server.requests) == 3


def test_offline_says_where_to_get_the_file_and_how_to_pass_it(tmp_path: Path) -> None:
    with Server() as nobody_serves_it:
        port = nobody_serves_it.server_port
    spec = spec_for(port)
    assert spec.weights is not None
    with pytest.raises(DownloadError) as caught:
        download_weights(spec, folder=tmp_path)
    text = str(caught.value)
    assert spec.weights.url in text
    assert str(tmp_path / spec.weights.file_name) in text
    assert "--weights FILE" in text


def test_a_model_without_published_weights_says_so() -> None:
    with pytest.raises(NoPublishedWeightsError, match="cifar10_plain9_b2"):
        download_weights(builtin_registry()["cifar10_plain9_b2"])


def test_a_folder_that_cannot_be_written_is_an_error(spec: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="cannot write to"):
        download_weights(spec, folder=tmp_path / "file")


def test_processes_that_ask_at_once_download_once(server: Server, tmp_path: Path) -> None:
    spec = spec_for(server.server_port)
    program = """
import sys
from pathlib import Path
from bcos_sdk.registry import ModelSpec
from bcos_sdk.weights import download_weights
sys.stdin.readline()
print(download_weights(ModelSpec.model_validate_json(sys.argv[1]), folder=Path(sys.argv[2])).stat().st_size)
"""
    command = [sys.executable, "-c", program, spec.model_dump_json(), str(tmp_path)]
    workers = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(3)]
    answers = [worker.communicate("go\n", timeout=120)[0] for worker in workers]
    assert answers == [f"{len(CONTENT)}\n"] * 3
    assert len(server.requests) == 1
    assert left_behind(tmp_path) == {".pth"}
