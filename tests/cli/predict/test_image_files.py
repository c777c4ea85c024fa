"""Which images `bcos-sdk predict` finds: files, folders, patterns and lists, and not its own pictures."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.predicting import add_image, lines, names, records, run


def test_files_patterns_lists_and_stdin(images: Path) -> None:
    a, b = str(images / "a.png"), str(images / "below" / "b.jpg")
    Path("list.txt").write_text(f"{a}\n\n{b}\n")
    Path("windows.txt").write_bytes(b"\xef\xbb\xbf" + f"{a}\r\n{b}".encode())
    Path("null.txt").write_bytes(f"{a}\0{b}\0".encode())
    for sources, stdin in (
        ([a, b], None),
        ([a, a, b], None),
        ([f"{images}/*.png", f"{images}/**/*.jpg"], None),
        ([f"{images}/**"], None),
        (["@list.txt"], None),
        (["@windows.txt"], None),
        (["-0", "@null.txt"], None),
        (["-"], f"{a}\n{b}\n"),
        (["-"], f"{a}\n{b}"),
        (["-", "--null"], f"{a}\0{b}"),
        ([images, b], None),
        ([images, "images"], None),
    ):
        result = run(*sources, "--format", "jsonl", stdin=stdin)
        assert [line["source"] for line in lines(result)] == [a, b], sources


@pytest.mark.parametrize("source", ["nothing", "empty", "*.nothing", "@missing.txt"])
def test_sources_without_images_are_errors(images: Path, source: str) -> None:
    Path("empty").mkdir()
    result = run(source)
    assert result.exit_code in (1, 5)
    assert "nothing" in result.stderr or "empty" in result.stderr or "missing" in result.stderr
    assert result.stdout == ""


def test_a_pattern_without_matches_is_a_failure_and_the_rest_is_processed(images: Path) -> None:
    result = run(images / "a.png", "no*thing", "--format", "jsonl")
    assert result.exit_code == 5
    assert "no file matches no*thing" in result.stderr
    assert len(lines(result)) == 2


def test_spaces_at_the_ends_of_listed_names_are_kept(images: Path) -> None:
    found = [add_image(Path(name), seed) for seed, name in enumerate((" first.png", "last.png ", "\ttab.png", " "))]
    by_line = run("-", "--format", "jsonl", stdin="".join(f"{path}\n" for path in found[:3]))
    assert [line["source"] for line in lines(by_line)] == [str(path) for path in found[:3]]
    by_null = run("-", "-0", "--format", "jsonl", stdin="\0".join(map(str, found)))
    assert [line["source"] for line in lines(by_null)] == [str(path) for path in found]


def test_line_ends_in_names_need_null(images: Path) -> None:
    add_image(Path("two\nlines.png"))
    result = run("-", "-0", "--format", "jsonl", "--out", "out", "--save", "overlay", stdin="two\nlines.png\0")
    assert [line["source"] for line in lines(result)] == ["two\nlines.png"]
    assert Path("out/two\nlines.png.overlay.png").exists()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("null", [False, True])
def test_an_image_in_place_of_a_list_says_what_is_expected(images: Path, form: str, null: bool) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, form)
    Path("image").write_bytes(file.getvalue())
    for source, stdin in (("-", file.getvalue()), ("@image", None)):
        result = run(source, *["-0"][: int(null)], stdin=stdin)
        assert result.exit_code == 1
        assert "expected a list of image paths" in result.stderr
        assert "bcos-sdk predict cat.jpg" in result.stderr
        assert len(result.stderr.splitlines()) == 2, "one message with one hint, not one failure per line"


def test_a_list_with_null_bytes_says_that_it_needs_an_option(images: Path) -> None:
    result = run("-", stdin=b"a.png\0b.png\0")
    assert result.exit_code == 1
    assert "-0" in result.stderr
    assert run("-", stdin="a.png\n".encode("utf-16")).exit_code == 1


def test_the_second_run_does_not_explain_its_own_pictures(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(images)
    first = run(".", "--save", "overlay", "--format", "jsonl")
    assert names(first) == ["a.png", "b.jpg"]
    again = run(".", "--save", "overlay", "--format", "jsonl", "--overwrite")
    assert names(again) == ["a.png", "b.jpg"]
    assert "skipped 2 files in the output folder" in again.stderr
    resumed = run(".", "--save", "overlay", "--format", "jsonl", "--resume")
    assert names(resumed) == []
    assert len(records("bcos-out")) == 2


@pytest.mark.parametrize("source", [".", "**/*.[jp][pn]g"])
def test_pictures_that_the_record_of_any_folder_lists_are_skipped(
    images: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images)
    run("a.png", "below", "--save", "overlay", "--out", "elsewhere")
    mine = add_image(Path("elsewhere/mine.png"))
    result = run(source, "--format", "jsonl")
    assert [line["source"] for line in lines(result)] == ["a.png", "below/b.jpg", str(mine)]
    assert "2 files that earlier runs wrote" in result.stderr
    assert names(run("elsewhere", "--format", "jsonl")) == ["mine.png"]
    named = run("elsewhere/a.png.overlay.png", "--format", "jsonl")
    assert names(named) == ["a.png.overlay.png"], "a file that is named itself is not skipped"
    assert run("elsewhere/*.overlay.png").exit_code == 1


@pytest.mark.parametrize("source", ["images", "images/**/*.[jp][pn]g"])
def test_pictures_beside_the_images_are_skipped(images: Path, source: str) -> None:
    options = ["--save", "overlay", "--out", "images", "--format", "jsonl"]
    assert sorted(names(run(source, *options))) == ["a.png", "b.jpg"]
    assert Path("images/a.png.overlay.png").exists()
    assert sorted(names(run(source, *options, "--overwrite"))) == ["a.png", "b.jpg"]
    assert names(run("images/below", "--format", "jsonl")) == ["b.jpg"], "the record is in the folder above"


def test_other_files_named_like_a_record_do_no_harm(images: Path) -> None:
    text = '[1]\n{"name": 1, "files": 2}\n{"name": "a", "files": [1]}\nnot JSON\n{"name": "x", "files": ["a.png"]}\n'
    (images / "below" / "results.jsonl").write_text(text)
    assert names(run(images, "--format", "jsonl")) == ["a.png", "b.jpg"]


@pytest.fixture
def locked(images: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The subfolder of the images, as if this process may not read it. Root may read every folder."""
    scandir = os.scandir
    folder = images / "below"

    def refuse(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    return folder


def test_a_folder_without_permission_is_a_failure_and_the_rest_is_processed(images: Path, locked: Path) -> None:
    result = run(images, "--format", "jsonl", "--out", "out")
    assert result.exit_code == 5
    failure, found = lines(result)
    assert (failure["source"], failure["code"]) == (str(locked), "image_unreadable")
    assert Path(found["source"]).name == "a.png"
    assert f"error [image_unreadable]: cannot read the folder {locked}: Permission denied" in result.stderr
    assert result.stderr.splitlines()[-1] == "1 done, 1 failed; written to out"
    assert [record["name"] for record in records()] == ["a.png"]


def test_a_given_folder_without_permission(images: Path, locked: Path) -> None:
    result = run(locked)
    assert result.exit_code == 5
    assert "cannot read the folder" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_real_folder_without_permission(images: Path) -> None:
    (images / "below").chmod(0)
    try:
        assert run(images).exit_code == 5
        assert run(images / "below").exit_code == 5
        assert run(images / "below" / "b.jpg").exit_code == 5
    finally:
        (images / "below").chmod(0o755)


def test_hidden_folders_and_other_suffixes_are_not_searched(images: Path) -> None:
    add_image(images / ".venv" / "x.png")
    (images / "notes.txt").write_text("text")
    result = run(images, "--format", "jsonl")
    assert names(result) == ["a.png", "b.jpg"]
    assert "skipped 1 file with other suffixes" in result.stderr
    assert names(run(images / ".venv", "--format", "jsonl")) == ["x.png"], "unless it is named"
