"""`read_rows`: the rows of a run as typed results, equal to those of a client on one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.batches import add_images, run_shards
from support.bundles import small_bundle

from bcos_sdk import Client, Explained, Failure
from bcos_sdk.errors import IncompleteExplanationError, InputError, MissingArrayError
from bcos_sdk.ray import Folder, Question, Start, read_rows
from bcos_sdk.ray._parts import rows_in, write_rows
from bcos_sdk.ray._record import begin, read_record, replace_earlier

pytest.importorskip("pyarrow")


def test_results_are_those_of_a_client(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 7)
    question = Question(maps="float32", targets=["lynx", "fox vs lynx", "mean"])
    run_shards(tmp_path / "out", images, Start.NEW, question, size=3)
    rows = list(read_rows(str(tmp_path / "out")))
    assert [row.path for row in rows] == images
    with Client(small_bundle().path, device="cpu", threads=1, fixed_batch=True) as client:
        for row, expected in zip(
            rows, client.explain(images, targets=["lynx", "fox vs lynx", "mean"], on_error="return"), strict=True
        ):
            assert row.result.to_json(arrays="omit") == expected.to_json(arrays="omit")
            if isinstance(expected, Failure):
                assert row.maps == ()
                continue
            assert isinstance(row.result, Explained)
            for mine, theirs, stored in zip(row.result.explanations, expected.explanations, row.maps, strict=True):
                assert stored is not None
                assert mine.contributions.tobytes() == theirs.contributions.tobytes() == stored.tobytes()
                assert mine.verified
                np.testing.assert_array_equal(np.asarray(mine.heatmap()), np.asarray(theirs.heatmap()))


def test_rounded_maps_are_beside_the_certificate(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 2)
    run_shards(tmp_path / "out", images, Start.NEW)
    with Client(small_bundle().path, device="cpu", threads=1, fixed_batch=True) as client:
        for row, expected in zip(read_rows(str(tmp_path / "out")), client.explain(images), strict=True):
            assert isinstance(row.result, Explained)
            (explanation,) = row.result.explanations
            assert explanation.completeness == expected.explanations[0].completeness
            assert not explanation.verified
            with pytest.raises(MissingArrayError):
                _ = explanation.contributions
            (stored,) = row.maps
            assert stored is not None
            np.testing.assert_allclose(stored, expected.explanations[0].contributions, rtol=2**-11, atol=1e-6)


def test_predictions_have_no_explanations(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 2)
    run_shards(tmp_path / "out", images, Start.NEW, Question(explain=False, maps="none", top_k=2))
    with Client(small_bundle().path, device="cpu", threads=1, fixed_batch=True) as client:
        expected = client.predict(images, top_k=2)
    assert [row.result for row in read_rows(str(tmp_path / "out"))] == expected


def test_a_certificate_that_is_not_that_of_the_map_is_refused(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 2)
    run_shards(tmp_path / "out", images, Start.NEW, Question(maps="float32"))
    (file,) = (tmp_path / "out").glob("*.parquet")
    rows = list(rows_in(Folder(str(tmp_path / "out")), file.name))
    fields = rows[1]["explanations"][0]["contributions"]
    fields["data"] = (np.frombuffer(fields["data"], "<f4") * 2).tobytes()
    write_rows(file, rows)
    reading = read_rows(str(tmp_path / "out"))
    next(reading)
    with pytest.raises(IncompleteExplanationError, match="certificate"):
        next(reading)


@pytest.mark.parametrize(
    ("column", "value"), [("work", "{}"), ("status", "failed"), ("work", None), ("classes", None), ("box", [1.0])]
)
def test_damaged_rows_are_refused(column: str, value: object, tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 1)
    run_shards(tmp_path / "out", images, Start.NEW)
    (file,) = (tmp_path / "out").glob("*.parquet")
    (row,) = rows_in(Folder(str(tmp_path / "out")), file.name)
    write_rows(file, [row | {column: value}])
    with pytest.raises(InputError, match=r"the row of .* is not valid"):
        list(read_rows(str(tmp_path / "out")))


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no Parquet files"):
        list(read_rows(str(tmp_path)))
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"path": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="has no column box, class"):
        list(read_rows(str(tmp_path)))


def test_files_of_a_run_that_does_not_count_yet_are_left_out(tmp_path: Path) -> None:
    images = add_images(tmp_path / "images", 2)
    run_shards(tmp_path / "out", images, Start.NEW)
    folder = Folder(str(tmp_path / "out"))
    run_shards(tmp_path / "out", images, Start.OVERWRITE, Question(targets=["lynx"]))
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    assert [row.work.targets for row in read_rows(str(tmp_path / "out"))] == [()] * 2
    record = read_record(folder)
    assert record is not None
    replace_earlier(folder, record)
    assert [row.work.targets for row in read_rows(str(tmp_path / "out"))] == [("lynx",)] * 2
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1
    begin(folder, Start.OVERWRITE)
    assert len(list(read_rows(str(tmp_path / "out")))) == 2
