"""The options of `predict --engine ray`: what is refused before Ray is started, and what is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.predicting import run

from bcos_sdk import _extras
from bcos_sdk.bundle import open_bundle
from bcos_sdk.cli.predict import _ray_command
from bcos_sdk.cli.predict._ray_command import Asked
from bcos_sdk.cli.predict._ray_sources import find_images_and_urls
from bcos_sdk.errors import InputError
from bcos_sdk.ray import Question


def test_the_engine_needs_its_extra(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_extras, "is_installed", lambda module: module != "ray")
    done = run(images, "--explain", "--engine", "ray")
    assert done.exit_code == 1
    assert "The engine ray needs ray, which is not installed" in done.stderr
    assert "pip install 'bcos-sdk[ray]'" in done.stderr
    assert not Path("bcos-out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "2"), "--workers needs --engine ray"),
        (("--address", "127.0.0.1:6379"), "--address needs --engine ray"),
        (("--images-per-file", "9"), "--images-per-file needs --engine ray"),
        (("--maps", "int8"), "--maps needs --engine ray"),
        (("--engine", "ray", "--report"), "--report cannot be used with --engine ray"),
        (("--engine", "ray", "--save", "npz"), "--save npz cannot be used with --engine ray"),
        (("--engine", "ray", "--format", "csv"), "--format cannot be used with --engine ray"),
        (("--engine", "ray", "--resume", "--overwrite"), "--resume and --overwrite cannot be used together"),
        (("--engine", "spark"), "'spark' is not one of 'local', 'ray'"),
        (("--out", "s3://bucket/out"), "s3://bucket/out is a URL: add --engine ray"),
        (("s3://bucket/images",), "s3://bucket/images is a URL: add --engine ray"),
        (("--engine", "ray", "--workers", "0"), "0 is not in the range"),
    ],
)
def test_options_that_do_not_fit(options: tuple[str, ...], message: str, images: Path) -> None:
    done = run(images, *options)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray must not be started."""
    pytest.importorskip("pyarrow")

    def refuse(*_: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(_ray_command, "require_ray", lambda: None)
    monkeypatch.setattr(_ray_command, "connected", refuse)


@pytest.mark.usefixtures("without_ray")
def test_what_is_refused_before_ray_is_started(images: Path) -> None:
    done = run("missing", "--engine", "ray", "--target", "no such class", "--model", "no-such-model")
    assert "error [bundle_invalid]" in done.stderr
    Path("full").mkdir()
    (Path("full") / "other.parquet").touch()
    done = run(images, "--engine", "ray", "--out", "full")
    assert "full has the file other.parquet" in done.stderr
    Path("file").touch()
    assert "is a file" in run(images, "--engine", "ray", "--out", "file").stderr
    Path("empty").mkdir()
    assert "found no images in empty" in run("empty", "--engine", "ray", "--out", "out").stderr
    assert "[unknown_target]" in run(images, "--engine", "ray", "--out", "out", "--target", "no such class").stderr
    assert not Path("out").exists()


def test_paths_and_urls_of_lists_and_folders(images: Path) -> None:
    listed = Path("list.txt")
    listed.write_text(f"{images / 'a.png'}\ns3://bucket/one.jpg\n\ns3://bucket/noext\n")
    found = find_images_and_urls((str(images), f"@{listed}"), null=False, out=None)
    assert found.paths == [
        str(images / "a.png"),
        str(images / "below" / "b.jpg"),
        "s3://bucket/one.jpg",
        "s3://bucket/noext",
    ]
    found = find_images_and_urls((str(images / "a.png"), "missing.jpg"), null=False, out=None)
    assert found.paths == [str(images / "a.png"), str(Path("missing.jpg").absolute())]
    Path("nothing").mkdir()
    with pytest.raises(InputError, match="found no images in nothing"):
        find_images_and_urls(("nothing",), null=False, out=None)


def test_urls_are_searched_for_images() -> None:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("pyarrow")
    files = fsspec.filesystem("memory")
    for name in ("a.jpg", "b.JPEG", "c.txt", ".d.jpg"):
        files.pipe_file(f"memory://searched/images/{name}", b"")
    found = find_images_and_urls(("memory://searched/images",), null=False, out=None)
    assert found.paths == ["memory://searched/images/a.jpg", "memory://searched/images/b.JPEG"]
    assert dict(found.skipped) == {"with other suffixes": 1}


@pytest.mark.parametrize(
    ("asked", "maps", "expected"),
    [
        ({}, None, Question(explain=False, maps="none", top_k=5)),
        ({"explain": True}, None, Question()),
        ({"pictures": ("overlay",)}, "none", Question(maps="none", pictures=("overlay",))),
        ({"targets": ("lynx", "3")}, "int8", Question(targets=["lynx", 3], maps="int8")),
        ({"explain": True, "top_k": 3}, None, Question(top_k=3)),
    ],
)
def test_what_is_explained(asked: dict[str, Any], maps: Any, expected: Question, images: Path) -> None:
    values: dict[str, Any] = {"explain": False, "targets": (), "top_k": None, "pictures": (), **asked}
    request = Asked((str(images),), False, "out", os.environ["BCOS_SDK_MODEL"], "", **values)
    assert request.question(open_bundle(Path(request.model)), maps) == expected
