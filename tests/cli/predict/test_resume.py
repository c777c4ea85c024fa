"""`bcos-sdk predict --resume`: what counts as finished, what is done again, and that this is said."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.bundles import copy_of, edit_manifest, random_pixels, small_bundle
from support.predicting import add_image, contents, lines, names, records, run

from bcos_sdk.cli.predict._output import Output

NAMES = ("a.png", "below/b.jpg")


def resume(images: object, *options: object) -> Any:
    return run(images, "--out", "out", "--resume", "--format", "jsonl", *options)


def labels(record: dict[str, Any]) -> list[str]:
    return [explanation["target"]["label"] for explanation in record["result"]["explanations"]]


def test_an_interrupted_run_can_be_resumed(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, pixels in enumerate(random_pixels(6, seed=3)):
        Image.fromarray(pixels).save(images / f"n{number}.png")
    write = Output.write

    def interrupted(self: Output, image: Any, *rest: Any) -> None:
        if image.name == "n3.png":
            raise KeyboardInterrupt
        write(self, image, *rest)

    options = [images, "--save", "overlay", "--report", "--out", "out", "--format", "jsonl"]
    with monkeypatch.context() as patched:
        patched.setattr(Output, "write", interrupted)
        first = run(*options)
    assert first.exit_code == 130
    assert "interrupted: 4 of 8 images are finished; continue with --resume" in first.stderr
    assert len(list(Path("out").rglob("*.1.overlay.png"))) == 4
    assert not list(Path("out").rglob("*.partial"))
    assert Path("out/report.html").read_text().count('"source"') == 4, "the report has what is finished"
    with Path("out/results.jsonl").open("a") as file:
        file.write('{"name": "n5.png", "kin')  # an incomplete line, as a killed process leaves it
    second = run(*options, "--resume")
    assert second.exit_code == 0, second.stderr
    assert "4 images were finished by an earlier run" in second.stderr
    assert set(names(second)) == {"n3.png", "n4.png", "n5.png", "b.jpg"}
    assert second.stderr.splitlines()[-1] == "4 done, 0 failed, 4 from an earlier run; written to out"
    assert len(records()) == 8
    assert Path("out/report.html").read_text().count('"source"') == 8
    third = run(*options, "--resume")
    assert third.stdout == ""
    assert "8 images were finished by an earlier run" in third.stderr


def test_resume_with_other_options_runs_the_images_again(images: Path, tmp_path: Path) -> None:
    def repeated(*options: object) -> int:
        return len(lines(resume(images, *options)))

    assert repeated() == 2
    assert repeated() == 0
    assert repeated("--explain") == 2
    assert repeated("--explain") == 0
    assert repeated("--save", "overlay") == 2
    assert repeated("--save", "overlay") == 0
    assert repeated("--save", "overlay,npz") == 2
    assert repeated("--save", "npz") == 0, "the record has more than what was asked for"
    assert repeated("--report", "--save", "overlay") == 2
    other = copy_of(small_bundle(), tmp_path / "other")
    edit_manifest(other, lambda document: document["model"].update(name="other"))
    assert repeated("--report", "--save", "overlay", "--model", other) == 2


def test_another_target_is_done_again_and_said(images: Path) -> None:
    run(images, "--target", "fox", "--save", "overlay", "--out", "out")
    before = contents()
    again = resume(images, "--target", "lynx", "--save", "overlay")
    assert len(lines(again)) == 2
    assert "0 images were finished by an earlier run; 2 are done again: other targets (2)" in again.stderr
    assert [labels(record) for record in records()] == [["lynx"], ["lynx"]]
    after = contents()
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in after if name.endswith(".png"))


def test_another_top_k_is_done_again_and_said(images: Path) -> None:
    run(images, "--out", "out")
    again = resume(images, "--top-k", 2)
    assert [len(line["classes"]) for line in lines(again)] == [2, 2]
    assert "2 are done again: another number of classes (2)" in again.stderr
    assert resume(images, "--top-k", 2).stdout == ""


def test_fewer_targets_leave_no_pictures_of_the_others(images: Path) -> None:
    run(images / "a.png", "--target", "fox", "--target", "lynx", "--save", "overlay", "--out", "out")
    resume(images / "a.png", "--target", "fox", "--save", "overlay")
    assert contents().keys() == {"results.jsonl", "a.png.overlay.png"}
    assert records()[0]["files"] == ["a.png.overlay.png"]


@pytest.mark.parametrize("way", ["write", "rename"])
def test_a_replaced_file_is_done_again_even_with_the_same_time(images: Path, way: str) -> None:
    target = add_image(images / "c.png", seed=1)
    run(images, "--out", "out")
    before = target.stat()
    other = add_image(images.parent / "other.png", seed=2)
    if way == "rename":
        other.replace(target)
    else:
        target.write_bytes(other.read_bytes())
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = resume(images)
    assert names(again) == ["c.png"]
    assert "2 images were finished by an earlier run; 1 is done again: the file changed (1)" in again.stderr
    assert resume(images).stdout == ""


def test_a_touched_file_is_still_finished(images: Path) -> None:
    run(images, "--out", "out")
    os.utime(images / "a.png", (1, 1))
    assert resume(images).stdout == ""


def test_another_file_of_the_same_name_is_another_image(images: Path) -> None:
    for number, folder in enumerate(("one", "two")):
        add_image(Path(folder) / "x.png", seed=number)
    run("one", "--out", "out", "--save", "overlay")
    again = resume("two", "--save", "overlay")
    assert [line["source"] for line in lines(again)] == ["two/x.png"]
    assert {record["result"]["source"]: record["files"] for record in records()} == {
        "one/x.png": ["x.png.overlay.png"],
        "two/x.png": ["x-2.png.overlay.png"],
    }
    for folder in ("one", "two"):
        assert resume(folder, "--save", "overlay").stdout == "", "each is known by its path"


def test_a_moved_image_is_a_new_image_and_the_old_record_stays(images: Path) -> None:
    run(images, "--out", "out")
    before = records()
    moved = images.rename(images.parent / "moved")
    again = resume(moved)
    assert "2 done, 0 failed" in again.stderr
    assert records()[:2] == before
    assert [record["path"] for record in records()[2:]] == [str(moved / name) for name in NAMES]


def test_an_equal_file_in_another_folder_has_its_own_record(images: Path) -> None:
    """It does not replace the record of the first file, and is not taken for it."""
    other = Path(shutil.copytree(images, images.parent / "other"))
    run(images, "--target", "fox", "--out", "out")
    resume(other, "--target", "lynx")
    found = {record["path"]: record["result"]["explanations"][0]["target"]["label"] for record in records()}
    expected = {str(folder / name): label for folder, label in ((images, "fox"), (other, "lynx")) for name in NAMES}
    assert found == expected
    third = Path(shutil.copytree(images, images.parent / "third"))
    assert len(resume(third, "--target", "fox", "--format", "jsonl").stdout.splitlines()) == 2, "each has a result"


def test_the_failure_of_another_image_stays(images: Path) -> None:
    broken = images.parent / "broken"
    broken.mkdir()
    (broken / "a.png").write_bytes(b"not an image")
    assert run(broken, "--out", "out").exit_code == 5
    again = resume(images)
    assert "failed before" not in again.stderr
    assert {(record["path"], record["kind"]) for record in records()} == {
        (str(broken / "a.png"), "Failure"),
        *((str(images / name), "Prediction") for name in NAMES),
    }


def test_a_line_that_was_replaced_does_not_give_two_images_one_name(images: Path) -> None:
    """A killed run leaves several lines of one name. Only the last one counts."""
    run(images, "--out", "out")
    (line, _other) = (Path("out") / "results.jsonl").read_text().splitlines()
    replaced = json.loads(line) | {"path": str(images.parent / "elsewhere.png")}
    record = Path("out") / "results.jsonl"
    record.write_text(json.dumps(replaced) + "\n" + record.read_text())
    shutil.copy(images / "a.png", images.parent / "elsewhere.png")
    resume(images, images.parent / "elsewhere.png")
    assert len({entry["name"] for entry in records()}) == len({entry["path"] for entry in records()}) == 3


def test_without_the_report_the_second_class_is_not_kept(images: Path) -> None:
    run(images, "--report", "--save", "overlay", "--out", "out")
    assert "2 are done again: another number of classes (2)" in resume(images, "--save", "overlay").stderr
    assert {len(record["result"]["explanations"]) for record in records()} == {1}


def test_a_record_whose_files_are_missing_is_done_again(images: Path) -> None:
    run(images, "--save", "overlay", "--out", "out")
    Path("out/below/b.jpg.overlay.png").unlink()
    again = resume(images, "--save", "overlay")
    assert names(again) == ["b.jpg"]
    assert "1 is done again: a file is missing (1)" in again.stderr
    assert "out/below/b.jpg.overlay.png" in map(str, Path("out").rglob("*"))


def test_pictures_of_an_interrupted_repetition_are_not_taken_for_those_of_the_record(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run for another target is killed after it wrote a picture and before it wrote its record."""
    options = [images / "a.png", "--save", "overlay", "--report", "--out", "out", "--format", "jsonl"]
    run(*options, "--target", "fox")
    fox = contents()

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bcos_sdk.cli.predict._output.RunRecord.of", killed)
        assert run(*options, "--resume", "--target", "lynx").exit_code == 130
    assert len(lines(run(*options, "--resume", "--target", "fox"))) == 1
    again = contents()
    assert again["a.png.overlay.png"] == fox["a.png.overlay.png"]
    assert again["report.html"] == fox["report.html"]


def test_failed_images_are_tried_again(images: Path) -> None:
    (images / "late.png").write_bytes(b"half")
    first = run(images, "--out", "out")
    assert first.exit_code == 5
    assert first.stderr.splitlines()[-1] == "2 done, 1 failed; written to out"
    Image.fromarray(random_pixels(1)[0]).save(images / "late.png")
    again = resume(images)
    assert again.exit_code == 0
    assert names(again) == ["late.png"]
    assert "1 is done again: failed before (1)" in again.stderr
    assert [record["kind"] for record in records()] == ["Prediction"] * 3, "one line per image"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("{nonsense", "not JSON"),
        ("\x00\x01", "not JSON"),
        ("[1, 2]", "valid dictionary"),
        ('{"name": 5, "kind": "Prediction", "files": [], "result": {}}', "name"),
        ('{"kind": "Prediction", "files": [], "result": {}}', "name"),
        ('{"name": "a.png", "kind": "Prediction", "files": "a", "result": {}}', "files"),
        ('{"name": "a.png", "kind": "Poem", "files": [], "result": {}}', "kind"),
        ('{"name": "a.png", "kind": "Prediction", "files": [], "result": {"source": 1}}', "source"),
        ("[" * 100_000, "not JSON|nested"),
        ("\udcff", "not JSON"),
    ],
)
def test_a_damaged_line_is_reported_and_skipped(images: Path, damage: str, reason: str) -> None:
    run(images, "--out", "out", "--save", "overlay")
    path = Path("out/results.jsonl")
    _, second = path.read_text().splitlines()
    path.write_bytes(f"{damage}\n{second}\n".encode("utf-8", "surrogateescape"))
    again = resume(images, "--save", "overlay")
    assert again.exit_code == 0, again.stderr
    assert names(again) == ["a.png"], "the image of the damaged line is done again"
    assert "line 1 of out/results.jsonl is damaged and skipped" in again.stderr
    (line,) = (line for line in again.stderr.splitlines() if "damaged" in line)
    assert any(part in line for part in reason.split("|")), line
    assert {record["name"] for record in records()} == {"a.png", "below/b.jpg"}


def test_a_line_of_an_older_version_is_done_again(images: Path) -> None:
    run(images, "--out", "out")
    path = Path("out/results.jsonl")
    old = [{key: record[key] for key in ("name", "kind", "files", "result")} for record in records()]
    path.write_text("".join(json.dumps({**record, "model": "small 0123"}) + "\n" for record in old))
    again = resume(images)
    assert len(lines(again)) == 2
    assert "2 are done again: recorded by an older version (2)" in again.stderr
    assert len(records()) == 2


def test_a_last_line_without_line_end_is_kept(images: Path) -> None:
    run(images, "--out", "out")
    path = Path("out/results.jsonl")
    path.write_text(path.read_text().rstrip("\n"))
    add_image(images / "c.png")
    assert names(resume(images)) == ["c.png"]
    assert len(records()) == 3


def test_a_damaged_report_line_is_done_again(images: Path) -> None:
    run(images, "--out", "out", "--report")
    path = Path("out/.report.jsonl")
    first, _ = path.read_text().splitlines()
    path.write_text(f"{first}\n{{]\n")
    again = resume(images, "--report")
    assert names(again) == ["b.jpg"]
    assert "line 2 of out/.report.jsonl is damaged" in again.stderr
    assert Path("out/report.html").read_text().count('"source"') == 2


def test_a_report_of_an_earlier_run_is_mentioned_and_later_brought_up_to_date(images: Path) -> None:
    run(images, "--out", "out", "--report", "--target", "fox")
    without = resume(images, "--target", "lynx")
    assert "note: report.html in out: of an earlier run" in without.stderr
    resume(images, "--target", "lynx", "--report")
    page = Path("out/report.html").read_text()
    assert '"label": "lynx", "logit"' in page


PARTS = ["a.png", "b.png", "below/a.png", "below/c.png", "other/a.png", "bad.png"]


@settings(max_examples=6)
@given(
    first=st.lists(st.sampled_from(PARTS), min_size=1, max_size=4, unique=True),
    then=st.lists(st.sampled_from(PARTS), min_size=1, max_size=6, unique=True),
    changed=st.sampled_from([None, *PARTS]),
    target=st.sampled_from(["fox", "lynx"]),
)
def test_resuming_gives_what_one_run_gives(
    first: list[str],
    then: list[str],
    changed: str | None,
    target: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """After any run, resuming with other images and another target gives the results of a new run."""
    root = tmp_path_factory.mktemp("law")
    for number, part in enumerate(PARTS):
        add_image(root / part, seed=number)
    (root / "bad.png").write_bytes(b"bad")
    model = ["--model", small_bundle().path, "--max-batch", 1, "--save", "heatmap"]

    def results(out: Path) -> dict[str, tuple[Any, list[bytes]]]:
        return {
            record["result"]["source"]: (record["result"], [(out / file).read_bytes() for file in record["files"]])
            for record in records(out)
            if record["result"]["source"] in {str(root / part) for part in then}
        }

    run(*(root / part for part in first), *model, "--out", root / "resumed", "--target", "fox")
    if changed is not None:
        add_image(root / changed, seed=77)
    run(*(root / part for part in then), *model, "--out", root / "resumed", "--target", target, "--resume")
    run(*(root / part for part in then), *model, "--out", root / "new", "--target", target)
    assert results(root / "resumed") == results(root / "new")
    assert len(records(root / "resumed")) == len({*first, *then}), "one line per image, and none is lost"
    shutil.rmtree(root)
