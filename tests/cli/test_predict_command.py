"""`bcos-sdk predict` on the command line, with valid and with invalid input."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from support.bundles import LABELS, copy_of, edit_manifest, random_pixels, small_bundle

from bcos_sdk._progress import Progress
from bcos_sdk.cli import main
from bcos_sdk.cli._journal import Journal
from bcos_sdk.cli._output import Output
from bcos_sdk.results import Explained, Explanation, Prediction


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two valid images, one of them in a subfolder. BCOS_SDK_MODEL names the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BCOS_SDK_MODEL", str(small_bundle().path))
    folder = tmp_path / "images"
    (folder / "below").mkdir(parents=True)
    for name, pixels in zip(("a.png", "below/b.jpg"), random_pixels(2, size=(50, 70)), strict=True):
        Image.fromarray(pixels).save(folder / name)
    return folder


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["predict", *map(str, arguments)], input=stdin)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def bad_files(folder: Path) -> None:
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("this is text")
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"\0"))
    framed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    (folder / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))


def test_classes_as_text(images: Path) -> None:
    result = run(images)
    assert result.exit_code == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{images / 'a.png'}: ")
    assert second.startswith(f"{images / 'below' / 'b.jpg'}: ")
    assert all(any(label in line for label in LABELS) for line in (first, second))
    assert re.search(r"small \(BCOS_SDK_MODEL\) on (cpu|openvino), 2 images", result.stderr)
    assert [path.name for path in images.parent.iterdir()] == ["images"], (
        "no file is written without an option that asks for it"
    )


def test_explanations_as_text(images: Path) -> None:
    result = run(images / "a.png", "--explain")
    _, line = result.stdout.splitlines()
    assert "logit" in line
    assert "pixels" in line
    assert "head.bias" in line


@pytest.mark.parametrize("explain", [False, True])
def test_json_lines_are_results(images: Path, explain: bool) -> None:
    result = run(images, "--format", "jsonl", "--top-k", 2, *["--explain"][: int(explain)])
    parsed = [(Explained if explain else Prediction).from_json(line) for line in result.stdout.splitlines()]
    assert [Path(one.source).name for one in parsed] == ["a.png", "b.jpg"]
    assert all(len(one.explanations if isinstance(one, Explained) else one.classes) == 2 for one in parsed)


def test_csv_has_one_row_per_class(images: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(images, "--format", "csv", "--top-k", 3).stdout)))
    assert len(rows) == 6
    assert [row["rank"] for row in rows] == ["1", "2", "3"] * 2
    explained = list(csv.DictReader(io.StringIO(run(images, "--format", "csv", "--explain").stdout)))
    assert [row["passed"] for row in explained] == ["True", "True"]


def test_parquet_holds_every_result(images: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'bcos-sdk[parquet]'")
    bad_files(images)
    result = run(images, "--explain", "--format", "parquet", "--out", "out")
    assert result.exit_code == 5
    table = parquet.read_table("out/results.parquet").to_pylist()
    assert len(table) == 5
    assert sum(row["error"] is not None for row in table) == 3
    assert [row["passed"] for row in table if row["error"] is None] == [True, True]
    assert sorted(path.name for path in Path("out").iterdir()) == ["results.jsonl", "results.parquet"]


def test_targets_of_every_kind(images: Path) -> None:
    options = [part for target in ("3", "fox", "mean", "fox vs lynx") for part in ("--target", target)]
    (first, _) = lines(run(images, "--format", "jsonl", *options))
    labels = [explanation["target"]["label"] for explanation in first["explanations"]]
    assert labels == ["crane, bird", "fox", "mean", "fox vs lynx"]
    wrong = run(images, "--target", "foxx")
    assert wrong.exit_code == 1
    assert "[unknown_target]" in wrong.stderr
    assert "Similar labels: fox" in wrong.stderr


def test_files_patterns_lists_and_stdin(images: Path) -> None:
    a, b = str(images / "a.png"), str(images / "below" / "b.jpg")
    Path("list.txt").write_text(f"{a}\n\n{b}\n")
    for sources, stdin in (
        ([a, b], None),
        ([a, a, b], None),
        ([f"{images}/*.png", f"{images}/**/*.jpg"], None),
        (["@list.txt"], None),
        (["-"], f"{a}\n{b}\n"),
        ([images, b], None),
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


def test_bad_files_are_reported_and_do_not_stop_the_run(images: Path) -> None:
    bad_files(images)
    result = run(images, "--explain", "--save", "overlay", "--out", "out", "--format", "jsonl")
    assert result.exit_code == 5
    codes = {Path(line["source"]).name: line.get("code") for line in lines(result)}
    assert codes == {
        "a.png": None,
        "b.jpg": None,
        "empty.png": "image_unreadable",
        "text.jpg": "image_unreadable",
        "huge.png": "image_too_large",
    }
    assert result.stderr.count("error [image_") == 3
    assert sorted(path.name for path in Path("out").rglob("*.png")) == ["a.png.overlay.png", "b.jpg.overlay.png"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(images: Path) -> None:
    (images / "below").chmod(0)
    result = run(images)
    (images / "below").chmod(0o755)
    assert "cannot read the folder" in result.stderr
    assert result.exit_code == 0


def test_every_kind_of_file_is_saved(images: Path) -> None:
    result = run(images, "--top-k", 2, "--save", "overlay,rgba,heatmap,npz", "--out", "out")
    assert result.exit_code == 0, result.stderr
    names = {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}
    kinds = [f"{number}.{kind}" for number in (1, 2) for kind in ("overlay.png", "rgba.png", "heatmap.png", "npz")]
    assert names == {"results.jsonl", *(f"{name}.{kind}" for name in ("a.png", "below/b.jpg") for kind in kinds)}
    with Image.open("out/a.png.1.overlay.png") as picture:
        assert min(picture.size) >= 224, "small inputs are enlarged"
    with np.load("out/a.png.1.npz", allow_pickle=False) as arrays:
        metadata = Explanation.from_json(str(arrays["metadata"]))
        total = float(arrays["contributions"].sum(dtype=np.float64)) + sum(metadata.bias.values())
        assert total == pytest.approx(metadata.target.logit, rel=1e-4)


def test_images_with_the_same_name_do_not_overwrite_each_other(images: Path) -> None:
    (images / "other").mkdir()
    Image.fromarray(random_pixels(1, seed=9)[0]).save(images / "other" / "a.png")
    run(images / "a.png", images / "other" / "a.png", "--save", "overlay", "--out", "out")
    assert {path.name for path in Path("out").glob("*.overlay.png")} == {"a.png.overlay.png", "a-2.png.overlay.png"}


def test_wrong_options_are_usage_errors(images: Path) -> None:
    for arguments in (["--save", "poster"], ["--top-k", 0], ["--format", "xml"], ["--reprot"]):
        result = run(images, *arguments)
        assert result.exit_code == 2, arguments
    assert "choose from overlay" in run(images, "--save", "poster").stderr
    assert "Did you mean" in run(images, "--reprot").stderr
    assert run().exit_code == 2


def test_an_incomplete_explanation_is_exit_code_4(images: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle(), tmp_path / "strict")
    edit_manifest(bundle, lambda document: document.update(tolerance=1e-30))
    result = run(images, "--explain", "--save", "overlay", "--out", "out", "--model", bundle)
    assert result.exit_code == 4
    assert "[explanation_incomplete]" in result.stderr
    assert not list(Path("out").rglob("*.png"))


def test_the_model_and_the_reason_for_it_are_printed(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BCOS_SDK_MODEL")
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "store"))
    older, newer = (copy_of(small_bundle(), tmp_path / "store" / name) for name in ("older", "newer"))
    os.utime(older / "manifest.json", (1, 1))
    for folder in (older, newer):
        edit_manifest(folder, lambda document, name=folder.name: document["model"].update(name=name))  # type: ignore[misc]
    os.utime(older / "manifest.json", (1, 1))
    assert "newer (the last export)" in run(images).stderr
    assert "older (--model)" in run(images, "--model", "older").stderr
    monkeypatch.setenv("BCOS_SDK_MODEL", "older")
    assert "older (BCOS_SDK_MODEL)" in run(images).stderr


def test_an_interrupted_run_can_be_resumed(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, pixels in enumerate(random_pixels(6, seed=3)):
        Image.fromarray(pixels).save(images / f"n{number}.png")
    write = Output.write

    def interrupted(self: Output, image: Any, result: Any) -> None:
        if image.name == "n3.png":
            raise KeyboardInterrupt
        write(self, image, result)

    options = [images, "--save", "overlay", "--report", "--out", "out", "--format", "jsonl"]
    with monkeypatch.context() as patched:
        patched.setattr(Output, "write", interrupted)
        first = run(*options)
    assert first.exit_code == 130
    assert "interrupted: 4 of 8 images are finished; continue with --resume" in first.stderr
    assert len(list(Path("out").rglob("*.1.overlay.png"))) == 4
    assert not list(Path("out").rglob("*.partial"))
    with Path("out/results.jsonl").open("a") as file:
        file.write('{"name": "n5.png", "kin')  # an incomplete line, as a killed process leaves it
    second = run(*options, "--resume")
    assert second.exit_code == 0, second.stderr
    assert "4 images were finished by an earlier run" in second.stderr
    assert {Path(line["source"]).name for line in lines(second)} == {"n3.png", "n4.png", "n5.png", "b.jpg"}
    assert len(Path("out/results.jsonl").read_text().splitlines()) == 8
    assert Path("out/report.html").read_text().count('"source"') == 8
    third = run(*options, "--resume")
    assert third.stdout == ""
    assert "8 images were finished by an earlier run" in third.stderr


def test_resume_with_other_options_runs_the_images_again(images: Path, tmp_path: Path) -> None:
    def repeated(*options: object) -> int:
        return len(lines(run(images, "--out", "out", "--resume", "--format", "jsonl", *options)))

    assert repeated() == 2
    assert repeated() == 0
    assert repeated("--explain") == 2
    assert repeated("--explain") == 0
    assert repeated("--save", "overlay") == 2
    assert repeated("--save", "overlay") == 0
    assert repeated("--save", "overlay,npz") == 2
    assert repeated("--report", "--save", "overlay") == 2
    other = copy_of(small_bundle(), tmp_path / "other")
    edit_manifest(other, lambda document: document["model"].update(name="other"))
    assert repeated("--report", "--save", "overlay", "--model", other) == 2


def test_failed_images_are_tried_again(images: Path) -> None:
    (images / "late.png").write_bytes(b"half")
    assert run(images, "--out", "out").exit_code == 5
    Image.fromarray(random_pixels(1)[0]).save(images / "late.png")
    again = run(images, "--out", "out", "--resume", "--format", "jsonl")
    assert again.exit_code == 0
    assert [Path(line["source"]).name for line in lines(again)] == ["late.png"]


@pytest.mark.parametrize("written", ["Image.Image.save", "results"])
def test_a_full_disk_stops_the_run_with_an_error(images: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if written == "results":
        monkeypatch.setattr(Journal, "append", full)
    else:
        monkeypatch.setattr(Image.Image, "save", full)
    result = run(images, "--save", "overlay", "--out", "out")
    assert result.exit_code == 1
    assert "[output_failed]" in result.stderr
    assert "No space left on device" in result.stderr
    assert "--resume" in result.stderr
    assert Path("out/results.jsonl").read_text() == ""
    assert not list(Path("out").rglob("*.partial"))


def test_an_output_path_that_is_not_a_folder(images: Path) -> None:
    Path("file").write_text("in the way")
    assert run(images, "--out", "file").exit_code == 2
    result = run(images, "--out", "file/below")
    assert result.exit_code in (1, 2)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from bcos_sdk.cli import main; main()", "predict", *map(str, arguments)]


def test_a_closed_pipe_ends_without_a_traceback(images: Path) -> None:
    for number in range(30):
        Image.fromarray(random_pixels(1, seed=number)[0]).save(images / f"n{number:02}.png")
    with subprocess.Popen(
        command(images, "--format", "jsonl"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        stderr = process.stderr.read()
        process.wait(60)
    assert "Traceback" not in stderr


def test_ctrl_c_leaves_complete_files_only(images: Path) -> None:
    for number in range(200):
        Image.fromarray(random_pixels(1, seed=number, size=(300, 400))[0]).save(images / f"n{number:03}.png")
    process = subprocess.Popen(
        command(images, "--save", "overlay,npz", "--out", "out"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A job in the background ignores SIGINT, and its child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 60
    while not list(Path("out").glob("*.overlay.png")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "continue with --resume" in stderr
    records = [json.loads(line) for line in Path("out/results.jsonl").read_text().splitlines()]
    for path in Path("out").rglob("*.png"):
        with Image.open(path) as picture:
            picture.load()
    assert {name for record in records for name in record["files"]} <= {path.name for path in Path("out").rglob("*")}
    assert not list(Path("out").rglob("*.partial"))
    assert len(records) < 200


def test_the_progress_line_has_count_rate_and_time_left() -> None:
    progress = Progress(4, "images", shown=False)
    for _ in range(2):
        progress.step()
    assert "2/4" in progress.line()
    assert "images/s" in progress.line()
    assert "s left" in progress.line()


def test_the_command_is_part_of_the_group() -> None:
    assert main.commands["predict"].name == "predict"
