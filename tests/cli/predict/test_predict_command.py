"""`bcos-sdk predict` on the command line, with valid and with invalid input."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bundles import LABELS, copy_of, edit_manifest, random_pixels, small_bundle
from support.predicting import add_bad_files, add_image, command, contents, lines, run

from bcos_sdk._progress import Progress
from bcos_sdk.results import Explained, Explanation, Prediction


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
    add_bad_files(images)
    result = run(images, "--explain", "--format", "parquet", "--out", "out")
    assert result.exit_code == 5
    table = parquet.read_table("out/results.parquet").to_pylist()
    assert len(table) == 5
    assert sum(row["error"] is not None for row in table) == 3
    assert [row["passed"] for row in table if row["error"] is None] == [True, True]
    assert contents().keys() == {"results.jsonl", "results.parquet"}


def test_parquet_goes_to_stdout_without_an_output_folder(images: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'bcos-sdk[parquet]'")
    add_bad_files(images)
    result = run(images, "--format", "parquet")
    assert result.exit_code == 5
    table = parquet.read_table(io.BytesIO(result.stdout_bytes)).to_pylist()
    assert {Path(row["source"]).name for row in table} == {"a.png", "b.jpg", "empty.png", "text.jpg", "huge.png"}
    assert not Path("bcos-out").exists()


def test_parquet_is_not_sent_to_a_terminal(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'bcos-sdk[parquet]'")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    result = run(images, "--format", "parquet")
    assert result.exit_code == 2
    assert "> results.parquet" in result.stderr
    assert run(images, "--format", "parquet", "--out", "out").exit_code == 0


@pytest.mark.parametrize(
    ("options", "last"),
    [([], "2 done, 3 failed"), (["--out", "out"], "2 done, 3 failed; written to out")],
)
def test_the_last_line_counts_the_images(images: Path, options: list[str], last: str) -> None:
    add_bad_files(images)
    assert run(images, *options).stderr.splitlines()[-1] == last


def test_each_note_is_printed_once(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bcos_sdk.client import Client

    add_image(images / "c.png")
    stream = Client.predict_stream

    def with_notes(self: Client, *arguments: object, **options: object) -> Iterator[Any]:
        for result in stream(self, *arguments, **options):  # type: ignore[arg-type]
            yield result.model_copy(update={"notes": ("12-bit values\x1b[5m",)})

    monkeypatch.setattr(Client, "predict_stream", with_notes)
    notes = [line for line in run(images).stderr.splitlines() if line.startswith("note: ")]
    assert notes == [f"note: {images / 'a.png'}: 12-bit values\\x1b[5m", "note: 2 more images: 12-bit values\\x1b[5m"]


def test_targets_of_every_kind(images: Path) -> None:
    options = [part for target in ("3", "fox", "mean", "fox vs lynx") for part in ("--target", target)]
    (first, _) = lines(run(images, "--format", "jsonl", *options))
    labels = [explanation["target"]["label"] for explanation in first["explanations"]]
    assert labels == ["crane, bird", "fox", "mean", "fox vs lynx"]
    wrong = run(images, "--target", "foxx")
    assert wrong.exit_code == 1
    assert "[unknown_target]" in wrong.stderr
    assert "Similar labels: fox" in wrong.stderr


def test_bad_files_are_reported_and_do_not_stop_the_run(images: Path) -> None:
    add_bad_files(images)
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


def test_every_kind_of_file_is_saved(images: Path) -> None:
    result = run(images, "--top-k", 2, "--save", "overlay,rgba,heatmap,npz", "--out", "out")
    assert result.exit_code == 0, result.stderr
    kinds = [f"{number}.{kind}" for number in (1, 2) for kind in ("overlay.png", "rgba.png", "heatmap.png", "npz")]
    files = [f"{name}.{kind}" for name in ("a.png", "below/b.jpg") for kind in kinds]
    assert contents().keys() == {"results.jsonl", *files}
    with Image.open("out/a.png.1.overlay.png") as picture:
        assert min(picture.size) >= 224, "small inputs are enlarged"
    with np.load("out/a.png.1.npz", allow_pickle=False) as arrays:
        metadata = Explanation.from_json(str(arrays["metadata"]))
        total = float(arrays["contributions"].sum(dtype=np.float64)) + sum(metadata.bias.values())
        assert total == pytest.approx(metadata.target.logit, rel=1e-4)


def test_wrong_options_are_usage_errors(images: Path) -> None:
    for arguments in (["--save", "poster"], ["--top-k", 0], ["--format", "xml"], ["--reprot"]):
        result = run(images, *arguments)
        assert result.exit_code == 2, arguments
    assert "choose from overlay" in run(images, "--save", "poster").stderr
    assert "--report" in run(images, "--reprot").stderr, "the option that was probably meant"
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


def test_the_progress_line_has_count_rate_and_time_left() -> None:
    progress = Progress(4, "images", shown=False)
    for _ in range(2):
        progress.step()
    assert "2/4" in progress.line()
    assert "images/s" in progress.line()
    assert "s left" in progress.line()


def test_untrusted_images_are_decoded_by_other_processes_with_the_same_result(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(random_pixels(1, size=(700, 900))[0]).save(images / "large.png")
    (images / "bad.png").write_bytes(b"no image")
    options = ("--report", "--save", "overlay", "--format", "jsonl")
    trusted = run(images, *options, "--out", "trusted")
    monkeypatch.setattr("bcos_sdk.images._load.decode_image", None)  # decoding in this process would fail
    untrusted = run(images, *options, "--out", "untrusted", "--untrusted")
    assert (trusted.exit_code, untrusted.exit_code) == (5, 5)
    assert untrusted.stdout == trusted.stdout
    wanted, found = contents("trusted"), contents("untrusted")
    pictures = {name for name in wanted if name.endswith(".png")}
    assert len(pictures) == 6
    assert {name: found[name] for name in pictures} == {name: wanted[name] for name in pictures}
    assert len(found["report.html"]) == len(wanted["report.html"]), "drawn over the photograph in both"


def test_max_pixels_bounds_each_image(images: Path) -> None:
    result = run(images, "--format", "jsonl", "--max-pixels", 10)
    assert result.exit_code == 5
    assert {line["code"] for line in lines(result)} == {"image_too_large"}
    assert run(images, "--max-pixels", 0).exit_code == 2
