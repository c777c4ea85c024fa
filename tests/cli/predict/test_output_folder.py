"""The output folder of `bcos-sdk predict`: a record is never lost, one run at a time, and nothing is left behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.bundles import random_pixels
from support.predicting import add_image, command, contents, lines, names, records, run

from bcos_sdk.cli._journal import Journal
from bcos_sdk.cli.predict import _drawings

HOLD = """
import sys, time
from pathlib import Path
from bcos_sdk.cli._folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--target", "foxx"],
        ["--top-k", "99", "--explain"],
        ["--model", "no_such_model"],
        ["--device", "no_such_device"],
        ["--max-batch", "1000000"],
        ["--save", "poster"],
        ["--resume", "--overwrite"],
        ["--overwrite", "--target", "foxx"],
        ["--overwrite", "--model", "no_such_model"],
        ["--resume", "--target", "foxx"],
    ],
)
def test_a_run_that_fails_at_an_argument_changes_nothing(images: Path, options: list[str]) -> None:
    run(images, "--save", "overlay", "--report", "--out", "out")
    before = contents()
    listing = sorted(Path("out").rglob("*"))
    result = run(images, "--out", "out", *options)
    assert result.exit_code in (1, 2)
    assert contents() == before
    assert sorted(Path("out").rglob("*")) == listing
    assert run("nowhere/*.png", "--out", "out", "--overwrite").exit_code == 1
    assert contents() == before


def test_a_record_is_neither_continued_nor_replaced_unasked(images: Path) -> None:
    run(images, "--save", "overlay", "--out", "out")
    before = contents()
    for path in Path("out").glob(".bcos-sdk.lock*"):
        path.unlink()
    result = run(images, "--out", "out", "--save", "overlay")
    assert result.exit_code == 2
    assert "[output_exists]" in result.stderr
    assert "--resume" in result.stderr
    assert "--overwrite" in result.stderr
    assert contents() == before
    assert not list(Path("out").glob(".*")), "the folder is as it was"


def test_overwrite_replaces_the_record_and_its_files_only(images: Path) -> None:
    run(images, "--save", "overlay,npz", "--report", "--out", "out")
    Path("out/mine.txt").write_text("mine")
    Path("out/a.png.mine.overlay.png").write_text("mine")
    result = run(images / "a.png", "--out", "out", "--overwrite", "--save", "heatmap")
    assert result.exit_code == 0, result.stderr
    assert contents().keys() == {"results.jsonl", "a.png.heatmap.png", "mine.txt", "a.png.mine.overlay.png"}
    assert [record["name"] for record in records()] == ["a.png"]
    assert not Path("out/.report.jsonl").exists()


def test_overwrite_keeps_the_record_until_there_is_a_result(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(images, "--save", "overlay", "--report", "--out", "out")
    before = contents()

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("bcos_sdk.client.Client.predict_stream", lambda *_, **__: interrupted())
    result = run(images, "--out", "out", "--overwrite")
    assert result.exit_code == 130, result.stderr
    assert contents() == before


def test_overwrite_removes_nothing_outside_the_folder(images: Path) -> None:
    run(images, "--save", "overlay", "--out", "out")
    outside = [Path("outside.overlay.png"), Path("linked/below.overlay.png")]
    for path in outside:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    Path("out/link").symlink_to(Path("linked").absolute())
    Path("out/mine.txt").write_text("mine")
    listed = ["../outside.overlay.png", str(outside[0].absolute()), "link/below.overlay.png", "mine.txt", "", "..", "."]
    record = records()[0]
    Path("out/results.jsonl").write_text(json.dumps({**record, "files": listed}) + "\n")
    assert run(images, "--out", "out", "--overwrite").exit_code == 0
    assert all(path.read_text() == "mine" for path in (*outside, Path("out/mine.txt")))


def test_a_file_that_is_not_a_record_is_not_continued(images: Path) -> None:
    Path("out").mkdir()
    Path("out/results.jsonl").write_text('{"mine": 1}\n')
    result = run(images, "--out", "out", "--resume")
    assert result.exit_code == 2
    assert "is not the record of a run" in result.stderr
    assert contents() == {"results.jsonl": b'{"mine": 1}\n'}


def test_a_second_run_is_refused_with_who_holds_the_folder(images: Path) -> None:
    run(images, "--out", "out")
    before = contents()
    with subprocess.Popen([sys.executable, "-c", HOLD, "out"], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for options in ([], ["--resume"], ["--overwrite"]):
            result = run(images, "--out", "out", *options)
            assert result.exit_code == 1
            assert "[output_in_use]" in result.stderr
            assert f"process {holder.pid} on " in result.stderr
            assert "since 20" in result.stderr
        assert contents() == before
        assert run(images).exit_code == 0, "a run that writes nothing needs no lock"
        holder.kill()
    assert run(images, "--out", "out", "--resume").exit_code == 0, "the lock of a killed process does not count"


def test_two_runs_at_once_lose_nothing(images: Path) -> None:
    for number in range(40):
        add_image(images / f"n{number:02}.png", seed=number)
    call = command(images, "--save", "overlay", "--out", "out")
    started = [subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert not any("Traceback" in text for text in errors), errors
    codes = [process.returncode for process in started]
    assert sorted(codes) in ([0, 1], [0, 2]), errors
    assert len({record["name"] for record in records()}) == 42


def test_leftovers_of_a_killed_run_go_at_the_next_start(images: Path) -> None:
    for number in range(40):
        add_image(images / "below" / f"n{number:02}.png", seed=number)
    with subprocess.Popen(
        command(images, "--save", "overlay,npz", "--out", "out"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while len(list(Path("out").rglob("*.overlay.png"))) < 3 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    leftovers = [Path("out") / place / f".{'0123456789abcdef' * 2}.partial" for place in ("", "below")]
    others = [Path("out/.mine.partial"), Path("out/below/mine.partial"), Path("out/.0123.partial")]
    for path in (*leftovers, *others):
        path.write_text("half")
    result = run(images, "--save", "overlay,npz", "--out", "out", "--resume")
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in Path("out").rglob("*.partial")} == {path.name for path in others}
    assert len({record["name"] for record in records()}) == 42


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
    record = Path("out") / "results.jsonl"
    while not (record.exists() and record.stat().st_size) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "continue with --resume" in stderr
    for path in Path("out").rglob("*.png"):
        with Image.open(path) as picture:
            picture.load()
    assert all((Path("out") / file).is_file() for record in records() for file in record["files"])
    assert not list(Path("out").rglob("*.partial"))
    assert len(records()) < 200


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
    assert "results.jsonl" not in contents()
    assert not list(Path("out").rglob("*.partial"))


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
def test_a_record_that_cannot_be_written_completely_is_continued(images: Path) -> None:
    """The file system refuses to let the record grow, in the middle of a line."""
    program = (
        "import resource, signal, sys; from bcos_sdk.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); main(sys.argv[1:])"
    )
    call = [sys.executable, "-c", program, "predict", str(images), "--device", "cpu", "--out", "out"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "[output_failed]" in done.stderr
    assert "Traceback" not in done.stderr
    assert Path("out/results.jsonl").stat().st_size == 1000
    result = run(images, "--out", "out", "--resume", "--format", "jsonl")
    assert result.exit_code == 0
    assert "it is incomplete" in result.stderr
    assert {record["name"] for record in records()} == {"a.png", "below/b.jpg"}
    assert len(lines(result)) in (1, 2)


def test_an_output_path_that_is_not_a_folder(images: Path) -> None:
    Path("file").write_text("in the way")
    assert run(images, "--out", "file").exit_code == 2
    result = run(images, "--out", "file/below")
    assert result.exit_code == 1
    assert "[output_failed]" in result.stderr


def test_a_file_that_changes_while_it_is_processed_is_done_again(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bcos_sdk.cli.predict._output import Output

    write = Output.write
    original = (images / "a.png").read_bytes()

    def changed(self: Output, task: Any, *rest: Any) -> None:
        add_image(images / "a.png", seed=5)
        write(self, task, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Output, "write", changed)
        run(images, "--out", "out")
    (images / "a.png").write_bytes(original)  # the hash from before would fit again
    assert names(run(images, "--out", "out", "--resume", "--format", "jsonl")) == ["a.png"]


def test_a_wrong_name_does_not_overwrite_a_record(images: Path) -> None:
    run(images, "--out", "out")
    before = records()
    assert run("nothere.png", "--out", "out", "--overwrite").exit_code == 5
    assert records() == before
    assert run("nothere.png", images, "--out", "out", "--overwrite").exit_code == 5
    assert [record["kind"] for record in records()] == ["Failure", "Prediction", "Prediction"]
    assert run("nothere.png", "--out", "new", "--overwrite").exit_code == 5
    assert [record["kind"] for record in records("new")] == ["Failure"]


@pytest.mark.parametrize("name", ["report.html", "results.parquet", "a.png.overlay.png", "a.png.1.overlay.png"])
def test_a_file_that_no_record_lists_is_not_replaced_unasked(images: Path, name: str) -> None:
    Path("out").mkdir()
    (Path("out") / name).write_text("mine")
    options = ["--report", "--save", "overlay", "--format", "parquet", "--out", "out"]
    refused = run(images, *options)
    assert refused.exit_code == 2
    assert f"has the file {name}, which this run would replace" in refused.stderr
    assert (Path("out") / name).read_text() == "mine"
    assert run(images, *options, "--overwrite").exit_code == 0


@pytest.mark.parametrize("failing", ["overlay", "npz"])
def test_pictures_of_an_interrupted_image_are_not_explained_later(
    images: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are listed before they are written."""
    save_one = _drawings._save_one

    def interrupted(explanation: Any, kind: str, path: Path) -> None:
        if kind == failing and path.name.startswith("b.jpg"):
            raise KeyboardInterrupt
        save_one(explanation, kind, path)

    monkeypatch.setattr(_drawings, "_save_one", interrupted)
    monkeypatch.chdir(images)
    options = [".", "--save", "heatmap,overlay,npz", "--out", "."]
    assert run(*options).exit_code == 130
    monkeypatch.setattr(_drawings, "_save_one", save_one)
    assert "1 done, 0 failed, 1 from an earlier run" in run(*options, "--resume").stderr
    assert sorted(record["name"] for record in records(".")) == ["a.png", "below/b.jpg"]
    assert not Path(".bcos-sdk.writing").exists()


def test_an_output_folder_below_a_file_is_refused_before_the_model_is_opened(images: Path) -> None:
    Path("file").write_text("")
    result = run(images, "--out", "file/out", "--model", "no-such-model")
    assert result.exit_code == 1
    assert "cannot write file/out: Not a directory\nChoose a folder for --out" in result.stderr


@pytest.mark.parametrize("place", ["_serialise", "swallowed"])
def test_an_interrupt_that_a_library_changes_is_still_an_interrupt(images: Path, place: str) -> None:
    """pydantic turns a KeyboardInterrupt in a serializer into an error of its own; finalizers swallow it."""
    program = f"""
import os, signal, sys
from bcos_sdk.cli import main
from bcos_sdk.results import Explained
to_json = Explained.to_json
def interrupted(self, **options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        if {place!r} == "_serialise":
            raise ValueError("of a library") from None
    return to_json(self, **options)
Explained.to_json = interrupted
main(sys.argv[1:])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *command(images, "--explain", "--out", "out")[3:]],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "of 2 images are finished; continue with --resume" in done.stderr
