"""The files of a run: the same rows as one client, whatever the shards; and what is done again with `--resume`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.batches import add_images, part_writer, reference_row, run_shards, settings, table_of
from support.bundles import random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.errors import OutputError, OutputInUseError
from bcos_sdk.ray import Question, Start, arrow_schema, read_rows, write_rows
from bcos_sdk.ray._record import begin
from bcos_sdk.ray._shards import Shard
from bcos_sdk.ray._storage import Folder
from bcos_sdk.ray._workers import BatchWorker

pytest.importorskip("pyarrow")

EXACT = Question(maps="float32", targets=["lynx", "fox vs lynx", "mean"])


@pytest.mark.parametrize(
    "question", [EXACT, Question(maps="float32", top_k=2), Question(explain=False, maps="none", top_k=3)]
)
def test_rows_are_those_of_one_client(question: Question, tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 11)
    run_shards(tmp_path / "out", images, Start.NEW, question, size=4)
    rows = table_of(tmp_path / "out")
    assert list(rows) == images
    with Client(small_bundle().path, device="cpu", threads=1, fixed_batch=True) as client:
        for path in images:
            for name, expected in reference_row(client, path, question).items():
                found = rows[path][name]
                if name == "explanations" and found is not None:
                    found = [{key: value for key, value in one.items() if key in expected[0]} for one in found]
                assert found == expected, (path, name)


def test_shards_do_not_change_a_row(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 13)
    for size in (1, 4, 5, 13):
        run_shards(tmp_path / f"out{size}", images, Start.NEW, EXACT, size=size)
        assert table_of(tmp_path / f"out{size}") == table_of(tmp_path / "out1")
    run_shards(tmp_path / "back", images[::-1], Start.NEW, EXACT, size=4)
    assert table_of(tmp_path / "back") == table_of(tmp_path / "out1")


def test_files_have_the_documented_schema_and_equal_bytes(tmp_path: Path) -> None:
    from pyarrow import parquet

    images = add_images(tmp_path / "images", 6)
    folder, contents = Folder(str(tmp_path / "out")), []
    record = begin(folder, Start.NEW)
    for name in ("one.parquet", "two.parquet"):
        with part_writer(folder, record) as writer:
            writer.process(Shard(name, tuple(images)))
        contents.append((tmp_path / "out" / name).read_bytes())
    assert contents[0] == contents[1]
    assert parquet.read_schema(tmp_path / "out" / "one.parquet").equals(arrow_schema())


def test_a_finished_file_is_not_written_again(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 8)
    Path(images[2]).unlink()
    Image.fromarray(random_pixels(1, seed=9)[0]).save(images[2])
    run_shards(tmp_path / "out", images, Start.NEW)
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in (tmp_path / "out").glob("*.parquet")}
    total, _ = run_shards(tmp_path / "out", images, Start.RESUME)
    assert (total.kept, total.done, total.failures, total.repeated) == (8, 0, {}, {})
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in (tmp_path / "out").glob("*.parquet")} == before


def test_an_interrupted_run_continues_without_the_finished_files(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 12)
    run_shards(tmp_path / "whole", images, Start.NEW, EXACT)
    run_shards(tmp_path / "out", images[:7], Start.NEW, EXACT)
    (tmp_path / "out" / f".{'0' * 32}.partial").write_bytes(b"of a killed process")
    total, _ = run_shards(tmp_path / "out", images, Start.RESUME, EXACT)
    assert (total.kept, total.done, total.failures) == (6, 5, {"image_unreadable": 1})
    assert table_of(tmp_path / "out") == table_of(tmp_path / "whole")


def changed(image: str) -> None:
    Image.fromarray(random_pixels(1, seed=77)[0]).save(image)


@pytest.mark.parametrize(
    ("question", "reason", "count"),
    [
        (Question(targets=["lynx"]), "other targets", 5),
        (Question(top_k=2), "another number of classes", 5),
        (Question(explain=False, maps="none"), "without explanations", 5),
        (Question(maps="float32"), "other outputs", 5),
        (Question(pictures=("heatmap",)), "other outputs", 5),
        (Question(maps="none"), "failed before", 1),
    ],
)
def test_what_is_done_again_because_of_the_work(question: Question, reason: str, count: int, tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 6)
    run_shards(tmp_path / "out", images, Start.NEW)
    total, _ = run_shards(tmp_path / "out", images, Start.RESUME, question)
    expected = {reason: count} if reason == "failed before" else {reason: count, "failed before": 1}
    assert total.repeated == expected
    if reason != "failed before":
        run_shards(tmp_path / "whole", images, Start.NEW, question)
        assert table_of(tmp_path / "out") == table_of(tmp_path / "whole")


def test_changed_repaired_and_vanished_images(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 9)
    run_shards(tmp_path / "out", images, Start.NEW)
    before = table_of(tmp_path / "out")
    changed(images[0])
    changed(images[2])  # it was damaged
    Path(images[5]).unlink()
    later = add_images(tmp_path / "images", 3, seed=8)
    total, _ = run_shards(tmp_path / "out", [*images[:8], *later], Start.RESUME)
    assert total.repeated == {"the file changed": 2, "failed before": 1}
    assert (total.done, total.kept, total.failures) == (5, 5, {"image_unreadable": 1})
    after = table_of(tmp_path / "out")
    assert after.keys() == {*images, *later}
    assert after[images[8]] == before[images[8]], "an image that this run does not name keeps its row"
    assert after[images[5]]["image_sha256"] is None
    assert after[images[5]]["error_message"] == f"there is no file {images[5]}"
    run_shards(tmp_path / "whole", [*images[:8], *later], Start.NEW)
    assert {path: after[path] for path in table_of(tmp_path / "whole")} == table_of(tmp_path / "whole")


def test_a_shard_that_is_repeated_gives_the_same_file(tmp_path: Path) -> None:
    """A worker is killed after it has written the file and before it has said so."""
    images = add_images(tmp_path / "images", 6)
    folder = Folder(str(tmp_path / "out"))
    record = begin(folder, Start.NEW)
    shard = Shard("part.parquet", tuple(images))
    with part_writer(folder, record, EXACT) as writer:
        first = writer.process(shard)
        written = (tmp_path / "out" / "part.parquet").read_bytes()
        again = writer.process(shard)
    assert (first.done, first.kept, again.done, again.kept) == (5, 0, 0, 5)
    assert first.failures == again.failures == {"image_unreadable": 1}
    assert written
    assert table_of(tmp_path / "out").keys() == set(images)
    assert {row["path"]: row for row in _rows(tmp_path / "out" / "part.parquet")} == table_of(tmp_path / "out")


def _rows(file: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return rows


def test_a_row_that_two_runs_wrote_is_dropped_from_one_file(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 4)
    run_shards(tmp_path / "out", images, Start.NEW, size=2)
    first, second = sorted((tmp_path / "out").glob("*.parquet"))
    shutil.copyfile(first, second)
    total, _ = run_shards(tmp_path / "out", images, Start.RESUME, size=2)
    assert table_of(tmp_path / "out").keys() == set(images)
    assert total.images == 4


def test_a_worker_of_an_earlier_run_stops(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 2)
    folder = Folder(str(tmp_path / "out"))
    record = begin(folder, Start.NEW)
    with part_writer(folder, record) as writer:
        begin(folder, Start.RESUME)
        with pytest.raises(OutputInUseError, match="another run writes to"):
            writer.process(Shard("part.parquet", tuple(images)))
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = add_images(tmp_path / "images", 2)
    folder = Folder(str(tmp_path / "out"))
    record = begin(folder, Start.NEW)
    with part_writer(folder, record) as writer:
        monkeypatch.setattr(shutil, "copyfileobj", _full_disk)
        with pytest.raises(OutputError, match="No space left on device"):
            writer.process(Shard("part.parquet", tuple(images)))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_bcos_sdk_run.json"]


def _full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_cells_without_a_path_or_contents_are_failed_rows(tmp_path: Path) -> None:
    import pyarrow

    images = add_images(tmp_path / "images", 2)
    contents = [Path(path).read_bytes() for path in images]
    paths = [images[0], None, "b.png", None, images[1]]
    data = [contents[0], contents[1], None, None, contents[1]]
    worker = BatchWorker(settings(), "bytes", "path", "session")
    table = worker(pyarrow.table({"path": paths, "bytes": data}))
    assert table.schema.equals(arrow_schema())
    rows = table.to_pylist()
    assert [row["path"] for row in rows] == paths
    assert [row["status"] for row in rows] == ["ok", "failed", "failed", "failed", "ok"]
    assert {row["error_code"] for row in rows[1:4]} == {"image_unreadable"}
    assert rows[1]["error_message"] == "a row of the data set has no path: expected text, not None"
    assert rows[2]["error_message"] == "b.png has no contents: expected the bytes of a file, not None"
    (tmp_path / "out").mkdir()
    write_rows(tmp_path / "out" / "a.parquet", rows)
    assert [row.path for row in read_rows(str(tmp_path / "out"))] == [path or "" for path in paths]
    numbers = worker(pyarrow.table({"path": [7], "bytes": ["text"]})).to_pylist()
    assert [row["status"] for row in numbers] == ["failed"]


def test_pictures_are_those_of_the_client(tmp_path: Path) -> None:
    from io import BytesIO

    import numpy as np

    images = add_images(tmp_path / "images", 2)
    question = Question(maps="none", pictures=("overlay", "rgba", "heatmap"))
    run_shards(tmp_path / "out", images, Start.NEW, question)
    with Client(small_bundle().path, device="cpu", threads=1, fixed_batch=True) as client:
        for row in read_rows(str(tmp_path / "out")):
            (explained,) = client.explain([row.path], weights=True)
            assert row.maps == (None,)
            for kind, contents in row.pictures[0].items():
                expected = getattr(explained.explanations[0], kind)()
                np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(contents))), np.asarray(expected))
            assert row.pictures[0].keys() == {"overlay", "rgba", "heatmap"}
