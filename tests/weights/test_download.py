"""Downloads from an HTTP server that truncates, sends wrong data, drops connections or is not there."""

from __future__ import annotations

import errno
import logging
import os
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from support.server import CONTENT, DIGEST, Server, serving

from bcos_sdk.errors import DownloadError, HashMismatchError, NoPublishedWeightsError
from bcos_sdk.registry import ModelSpec, WeightsSource, builtin_registry
from bcos_sdk.weights import _transfer, download_weights


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transfer, "_PAUSE_SECONDS", 0.0)


def spec_for(port: int, digest: str = DIGEST) -> ModelSpec:
    source = WeightsSource(
        url=f"http://127.0.0.1:{port}/release/net-{digest[:10]}.pth",
        sha256_prefix=digest[:10],
        licence="none",
    )
    return with_weights(source)


def with_weights(source: WeightsSource) -> ModelSpec:
    return builtin_registry()["resnet18"].model_copy(update={"weights": source})


@pytest.fixture
def spec(server: Server) -> ModelSpec:
    return spec_for(server.server_port)


def suffixes_left(folder: Path) -> set[str]:
    return {path.suffix for path in folder.iterdir()} - {".lock", ".sha256"}


def test_a_complete_download_is_kept(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    path = download_weights(spec, folder=tmp_path)
    assert path.read_bytes() == CONTENT
    assert suffixes_left(tmp_path) == {".pth"}
    assert download_weights(spec, folder=tmp_path) == path
    assert len(server.requests) == 1, "the second call must use the file in the folder"


def test_the_cache_folder_can_be_moved(spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "elsewhere"))
    assert download_weights(spec).parent == tmp_path / "elsewhere" / "weights"


def test_a_dropped_connection_is_resumed(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.cut_after = [1_500_000, 700_000]
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1500000-", "bytes=2200000-"]


def test_a_later_run_resumes_the_partial_file(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.cut_after = [1_000_000, 500_000, 250_000]
    with pytest.raises(DownloadError, match="ended after 1750000 of 3145728 bytes") as caught:
        download_weights(spec, folder=tmp_path)
    assert caught.value.retryable
    assert suffixes_left(tmp_path) == {".part"}, "no file may have the final name"
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=1750000-"


def test_a_server_without_ranges_starts_again(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.ranges = False
    server.cut_after = [1_000_000]
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("left_over", [b"something else", CONTENT + b"and more"])
def test_a_partial_file_with_other_contents_is_discarded(spec: ModelSpec, tmp_path: Path, left_over: bytes) -> None:
    assert spec.published_weights is not None
    (tmp_path / f"{spec.published_weights.file_name}.part").write_bytes(left_over)
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


def test_a_complete_partial_file_is_not_downloaded_again(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    assert spec.published_weights is not None
    part = tmp_path / f"{spec.published_weights.file_name}.part"
    part.write_bytes(CONTENT)
    part.chmod(0o644)
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT
    assert server.requests == ["bytes=3145728-"]


def test_status_416_without_a_range_request_is_an_error(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.status = 416
    with pytest.raises(DownloadError, match="the server returned 416") as caught:
        download_weights(spec, folder=tmp_path)
    assert not caught.value.retryable


@pytest.mark.parametrize("length", [None, "plenty", "-1"])
@pytest.mark.parametrize("shown", [True, False])
def test_without_a_valid_content_length_the_response_is_read_to_its_end(
    server: Server, spec: ModelSpec, tmp_path: Path, length: str | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.length = length
    monkeypatch.setattr(sys.stderr, "isatty", lambda: shown, raising=False)
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


def test_a_file_with_a_wrong_hash_is_deleted(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.content = b"<html>Please sign in to the network</html>"
    with pytest.raises(HashMismatchError, match=DIGEST[:10]):
        download_weights(spec, folder=tmp_path)
    assert suffixes_left(tmp_path) == set()


def test_a_damaged_file_in_the_cache_is_replaced(spec: ModelSpec, tmp_path: Path) -> None:
    path = download_weights(spec, folder=tmp_path)
    path.write_bytes(CONTENT[:-1] + b"!")
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT


def test_a_missing_file_is_not_retried(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DownloadError, match="404") as caught:
        download_weights(spec, folder=tmp_path)
    assert not caught.value.retryable
    assert len(server.requests) == 1
    assert suffixes_left(tmp_path) == set()


def test_a_busy_server_is_retried(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    server.status = 503
    with pytest.raises(DownloadError, match="503") as caught:
        download_weights(spec, folder=tmp_path)
    assert caught.value.retryable
    assert len(server.requests) == 3


def test_offline_the_hint_names_the_url_the_cache_path_and_the_option(tmp_path: Path) -> None:
    with Server() as closed_server:
        port = closed_server.server_port
    spec = spec_for(port)
    assert spec.published_weights is not None
    with pytest.raises(DownloadError) as caught:
        download_weights(spec, folder=tmp_path)
    text = str(caught.value)
    assert spec.published_weights.url in text
    assert str(tmp_path / spec.published_weights.file_name) in text
    assert "--weights FILE" in text


def test_a_model_without_published_weights_is_an_error() -> None:
    with pytest.raises(NoPublishedWeightsError, match="the registry has no weights for cifar10_plain9_b2"):
        download_weights(builtin_registry()["cifar10_plain9_b2"])


def test_a_folder_that_cannot_be_written_is_an_error(server: Server, spec: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match=r"(?s)cannot read or write in .*BCOS_SDK_CACHE") as caught:
        download_weights(spec, folder=tmp_path / "file")
    assert not caught.value.retryable
    assert server.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device on which no space is left")
def test_a_full_disk_is_not_reported_as_a_network_error(
    server: Server, spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transfer, "open_partial", lambda _part: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))
    with pytest.raises(DownloadError, match=r"cannot read or write in .*No space left") as caught:
        download_weights(spec, folder=tmp_path)
    assert not caught.value.retryable
    assert len(server.requests) == 1, "a retry cannot help"


def test_a_file_in_the_cache_that_cannot_be_read_is_an_error(
    spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = download_weights(spec, folder=tmp_path)
    open_any = os.open

    def open_others(name: Any, *arguments: Any, **options: Any) -> int:
        if str(name) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return open_any(name, *arguments, **options)

    monkeypatch.setattr(os, "open", open_others)
    with pytest.raises(DownloadError, match=f"Permission denied: '{path}'"):
        download_weights(spec, folder=tmp_path)


def test_an_unreachable_network_is_retried(spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def unreachable(request: urllib.request.Request, timeout: float) -> None:
        requests.append(request.full_url)
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    with pytest.raises(DownloadError, match=r"(?s)cannot download.*No route to host.*on a machine with") as caught:
        download_weights(spec, folder=tmp_path)
    assert caught.value.retryable
    assert len(requests) == 3


def test_a_connection_that_fails_while_reading_is_resumed(
    server: Server, spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = HTTPResponse.read1
    arrived: list[int] = []

    def read_or_break(self: HTTPResponse, amount: int = -1) -> bytes:
        if len(arrived) == 2:
            arrived.append(0)
            raise ssl.SSLError(1, "decryption failed or bad record mac")
        chunk = read(self, amount)
        arrived.append(len(chunk))
        return chunk

    monkeypatch.setattr(HTTPResponse, "read1", read_or_break)
    assert download_weights(spec, folder=tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, f"bytes={sum(arrived[:2])}-"]


def test_a_server_that_sends_almost_nothing_is_left(
    server: Server, spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read takes seconds and gets one byte, so that no time-out of the connection ends it."""
    seconds, read = [0.0], HTTPResponse.read1
    monkeypatch.setattr("bcos_sdk.weights._transfer.time.monotonic", lambda: seconds[0])

    def read_one(self: HTTPResponse, _amount: int = -1) -> bytes:
        seconds[0] += 29.0
        return read(self, 1)

    monkeypatch.setattr(HTTPResponse, "read1", read_one)
    with pytest.raises(DownloadError, match="sent only 3 bytes in 87 seconds") as caught:
        download_weights(spec, folder=tmp_path)
    assert caught.value.retryable
    assert len(server.requests) == 3


def test_the_whole_hash_is_recorded_at_first_use_and_must_stay_the_same(
    spec: ModelSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "bcos_sdk"):
        path = download_weights(spec, folder=tmp_path)
        download_weights(spec, folder=tmp_path)
    record = path.with_name(f"{path.name}.sha256")
    assert record.read_text("ascii") == f"{DIGEST}  {path.name}\n", "the format of sha256sum"
    (line,) = [entry.getMessage() for entry in caplog.records]
    assert line == f"SHA-256 of {path} recorded: {DIGEST}; the publisher states only its first 10 digits"
    other = DIGEST[:10] + "0" * 54
    record.write_text(f"{other}  {path.name}\n", "ascii")
    with pytest.raises(HashMismatchError, match=rf"(?s)its SHA-256 is {DIGEST}, expected {other}.*remove .*\.sha256"):
        download_weights(spec, folder=tmp_path)


@pytest.mark.parametrize("text", ["", "0" * 64, "not a hash", DIGEST + "0"])
def test_a_record_that_is_no_hash_of_the_publisher_is_an_error(spec: ModelSpec, tmp_path: Path, text: str) -> None:
    path = download_weights(spec, folder=tmp_path)
    path.with_name(f"{path.name}.sha256").write_text(text, "ascii")
    with pytest.raises(HashMismatchError, match="does not begin with a SHA-256"):
        download_weights(spec, folder=tmp_path)


def test_a_hash_that_the_registry_states_is_not_recorded(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.server_port}/net.pth"
    source = WeightsSource.model_validate({"url": url, "sha256": DIGEST, "size": len(CONTENT), "licence": ""})
    path = download_weights(with_weights(source), folder=tmp_path)
    assert path.name == f"net-{DIGEST[:10]}.pth"
    assert {one.suffix for one in tmp_path.iterdir()} - {".lock"} == {".pth"}
    other = source.model_copy(update={"sha256": DIGEST[:-1] + ("0" if DIGEST[-1] != "0" else "1")})
    with pytest.raises(HashMismatchError, match="is not the file"):
        download_weights(with_weights(other), folder=tmp_path / "other")


def test_weights_in_a_read_only_folder_are_used_without_a_record(
    spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = download_weights(spec, folder=tmp_path)
    record = path.with_name(f"{path.name}.sha256")
    record.unlink()

    def read_only(_self: Path, *_: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", read_only)
    assert download_weights(spec, folder=tmp_path) == path
    assert not record.exists()
