"""Paths, `file://` URLs and URLs of stores, as sources and as destinations; and addresses of clusters."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.batches import add_images

from bcos_sdk.cli import main
from bcos_sdk.cli.predict._ray_options import FolderOrUrl
from bcos_sdk.cli.predict._ray_sources import find_images_and_urls
from bcos_sdk.errors import ClusterError, InputError
from bcos_sdk.ray import Folder, is_url, local_path
from bcos_sdk.ray._cluster import connect

pytest.importorskip("pyarrow")

ONE_SLASH = ["s3:/bucket/images", "s3:/typo", "file:/images"]


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/images/")
    assert is_url("memory://a")
    assert not is_url("file:///images/a.jpg")
    assert not is_url("/images/s3:/a")
    assert not is_url("images")


def test_paths_in_file_urls() -> None:
    assert local_path("file:///images/a.jpg") == local_path("file://localhost/images/a.jpg") == Path("/images/a.jpg")
    assert local_path("images/s3:/a") == Path("images/s3:/a")
    odd = Path("/images/a b#%20ü?.jpg")
    assert local_path(odd.as_uri()) == odd
    assert local_path("C:/images") == Path("C:/images")
    with pytest.raises(InputError, match="is a file of another machine, expected file:///folder"):
        local_path("file://images/a.jpg")


@pytest.mark.parametrize("text", ONE_SLASH)
def test_one_slash_is_a_typing_error(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (Folder, local_path, lambda source: find_images_and_urls((source,), null=False, out=None)):
        with pytest.raises(InputError, match=r"has one slash after .*:, expected .*://"):
            use(text)
    with pytest.raises(click.BadParameter, match="has one slash after"):
        FolderOrUrl().convert(text, None, None)
    assert list(tmp_path.iterdir()) == []


def test_file_urls_are_sources_and_destinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = add_images(tmp_path / "the images", 4)
    folder = (tmp_path / "the images").as_uri()
    assert find_images_and_urls((folder,), null=False, out=None).paths == images
    (tmp_path / "list").write_text(f"{Path(images[0]).as_uri()}\n{images[1]}\n")
    assert find_images_and_urls(("@list",), null=False, out=None).paths == images[:2]
    out = Path(tmp_path, "the results")
    Folder(out.as_uri()).write("a.json", b"one")
    assert FolderOrUrl().convert(out.as_uri(), None, None) == out
    assert Folder(out.as_uri()).local == out
    assert (out / "a.json").read_bytes() == b"one"
    assert not (tmp_path / "file:").exists()


def test_empty_parts_of_keys_are_refused_before_anything_is_read() -> None:
    for place in ("s3://bucket//images", "s3://bucket/images//", "gs://bucket/a//b.jpg"):
        with pytest.raises(InputError, match="has an empty part, two slashes in a row"):
            Folder(place)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine that nobody listens at."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}", "127.0.0.1:99999"])
def test_an_address_without_a_cluster_is_an_error_at_once(address: str, closed_port: int) -> None:
    """Ray would try for minutes."""
    address = address.format(closed_port)
    with pytest.raises(ClusterError, match="cannot connect to the Ray cluster at") as caught:
        connect(address)
    assert caught.value.source == address
    assert "RAY_ADDRESS" in str(caught.value.hint)


def test_the_command_leaves_no_record_when_there_is_no_cluster(
    closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    (image,) = add_images(tmp_path / "images", 1)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")
    assert _run("predict", image, "--engine", "ray", "--out", str(tmp_path / "out")) == 1
    assert not list((tmp_path / "out").glob("_*"))


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)
