"""Results as rows, data frames and Parquet, and back from the files of a run."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bcos_sdk
from bcos_sdk import Explained, Explanation, Failure, Prediction, read_explanation, read_results, to_dataframe, to_rows
from bcos_sdk.cli import main
from bcos_sdk.cli.predict import _run_record
from bcos_sdk.cli.predict._formats import csv_rows, write_parquet
from bcos_sdk.errors import IncompleteExplanationError, InputError, MissingExtraError, OutputError
from bcos_sdk.results import COLUMNS, ClassScore, Completeness, Result, Target, result_of


def prediction(source: str = "cat.png", classes: int = 2, notes: tuple[str, ...] = ()) -> Prediction:
    scores = [
        ClassScore(index=3 + place, label=f"label {place}", logit=1.5 - place, probability=0.8 / (place + 1))
        for place in range(classes)
    ]
    return Prediction(source=source, model="net", classes=tuple(scores), notes=notes)


def explanation(source: str = "cat.png", index: int | None = 4, seed: int = 0) -> Explanation:
    contributions = np.random.default_rng(seed).standard_normal((4, 5)).astype(np.float32)
    total = float(contributions.sum(dtype=np.float64)) + 0.5
    scale = float(np.abs(contributions).sum()) + 0.5
    return Explanation(
        source=source,
        model="net",
        target=Target(index=index, label="lynx", logit=total, probability=None if index is None else 0.4),
        bias={"logit_bias": 0.5},
        completeness=Completeness(logit=total, sum=total, scale=scale, tolerance=1e-5),
        arrays={"contributions": contributions, "image": np.full((4, 5, 3), 9, np.uint8)},
    )


def explained(source: str = "cat.png") -> Explained:
    return Explained(
        source=source, prediction=prediction(source), explanations=(explanation(source), explanation(source, None))
    )


FAILURE = Failure(source="bad.png", code="image_unreadable", message="it is no image", hint=None, retryable=False)
MIXED: list[Prediction | Explained | Failure] = [prediction(notes=("12 bits", "page 1")), explained(), FAILURE]


def test_every_row_has_all_columns_and_only_the_cells_that_apply() -> None:
    rows = to_rows(MIXED)
    assert [list(row) for row in rows] == [list(COLUMNS)] * 5
    first, second, cat, mean, failure = rows
    assert (first["rank"], first["class"], first["label"], first["probability"]) == (1, 3, "label 0", 0.8)
    assert second["rank"] == 2
    assert first["notes"] == "12 bits; page 1"
    assert first["passed"] is first["sum"] is first["error"] is None
    assert (cat["rank"], cat["class"], cat["passed"], cat["notes"]) == (2, 4, True, None)
    assert mean["rank"] is mean["class"] is mean["probability"] is None
    assert failure == dict.fromkeys(COLUMNS) | {"source": "bad.png", "error": "image_unreadable: it is no image"}


def test_csv_has_the_same_rows() -> None:
    text = csv_rows(None) + "".join(map(csv_rows, MIXED))
    read = list(csv.DictReader(io.StringIO(text)))
    assert read == [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in to_rows(MIXED)]


def test_a_single_result_and_any_iterable_are_accepted() -> None:
    assert to_rows(FAILURE) == to_rows([FAILURE]) == to_rows(iter((FAILURE,)))
    assert to_rows([]) == []
    with pytest.raises(InputError, match="str is not a result"):
        to_rows(["cat.png"])  # type: ignore[list-item]


def test_a_data_frame_has_typed_columns_and_missing_values() -> None:
    pandas = pytest.importorskip("pandas")
    for results in (MIXED, [FAILURE], []):
        frame = to_dataframe(results)
        assert list(frame.columns) == list(COLUMNS)
        assert [str(kind) for kind in frame.dtypes[["rank", "class", "passed", "logit"]]] == [
            "Int64",
            "Int64",
            "boolean",
            "float64",
        ]
        for row, expected in zip(frame.to_dict("records"), to_rows(results), strict=True):
            assert {name: None if pandas.isna(cell) else cell for name, cell in row.items()} == expected


def test_a_missing_pandas_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcos_sdk._extras, "is_installed", lambda _: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'bcos-sdk\[pandas\]'"):
        to_dataframe(MIXED)


# --------------------------------------------------------------------------------------------------------- Parquet


def test_parquet_has_few_row_groups_and_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    results = [prediction(f"images/{number}.jpg", 8) for number in range(3000)] + MIXED * 2
    path = tmp_path / "table.parquet"
    write_parquet(iter(results), path)
    assert parquet.ParquetFile(path).num_row_groups == 3
    assert parquet.read_table(path).to_pylist() == to_rows(results)
    assert path.stat().st_size < 500_000
    assert [child.name for child in tmp_path.iterdir()] == ["table.parquet"]
    write_parquet([], path)
    assert parquet.read_table(path).column_names == list(COLUMNS)


def test_parquet_goes_to_a_pipe_which_stays_open() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    reading, writing = os.pipe()
    read: list[bytes] = []
    with open(reading, "rb") as source, open(writing, "wb") as pipe:  # noqa: PTH123 - file descriptors
        reader = threading.Thread(target=lambda: read.append(source.read()))
        reader.start()
        write_parquet(MIXED, pipe)
        assert not pipe.closed
        pipe.close()
        reader.join()
    assert parquet.read_table(io.BytesIO(read[0])).to_pylist() == to_rows(MIXED)


def test_an_error_leaves_no_half_written_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    def failing() -> Iterator[Failure]:
        yield FAILURE
        raise RuntimeError("the run was stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_parquet(failing(), tmp_path / "table.parquet")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="cannot write"):
        write_parquet(MIXED, tmp_path / "missing" / "table.parquet")


# --------------------------------------------------------------------------------------------------- results.jsonl


def record(name: str, result: Prediction | Explained | Failure) -> str:
    document = json.loads(result.to_json(arrays="omit"))
    return json.dumps({"name": name, "kind": type(result).__name__, "files": [], "later": 1, "result": document})


def without_arrays(result: Any) -> Any:
    return type(result).from_json(result.to_json(arrays="omit"))


def test_plain_results_and_records_of_a_run_are_read_as_typed_results(tmp_path: Path) -> None:
    plain, run = tmp_path / "plain.jsonl", tmp_path / "results.jsonl"
    plain.write_text("".join(result.to_json(arrays="omit") + "\n" for result in MIXED), "utf-8")
    run.write_text("\n\n".join(record(f"{place}.png", result) for place, result in enumerate(MIXED)), "utf-8")
    for path in (plain, run, str(run)):
        assert list(read_results(path)) == [without_arrays(result) for result in MIXED]
        assert to_rows(read_results(path)) == to_rows(MIXED)


def test_the_last_record_of_an_image_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, again = prediction("a.png"), prediction("a.png", 1)
    lines = [record("a.png", FAILURE), record("b.png", prediction("b.png")), record("a.png", first)]
    path.write_text("\n".join([*lines, record("a.png", again)]), "utf-8")
    assert list(read_results(path)) == [prediction("b.png"), again]


def test_a_result_is_validated_once_unless_its_image_has_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[str] = []
    validate = Failure.model_validate

    def count(document: Any) -> Failure:
        validated.append(document["message"])
        return validate(document)

    monkeypatch.setattr(Failure, "model_validate", count)
    path = tmp_path / "results.jsonl"
    failures = {f"{place}.png": FAILURE.model_copy(update={"message": f"{place}"}) for place in range(5)}
    path.write_text("\n".join(record(name, failure) for name, failure in failures.items()), "utf-8")
    assert list(read_results(path)) == list(failures.values())
    assert validated == [failure.message for failure in failures.values()]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "it is no JSON"),
        ("[1]", "no JSON object"),
        ('{"a": 1}', "none of Prediction, Explained, Failure"),
        ('{"kind": "Other", "result": {}}', "none of Prediction"),
        ('{"kind": ["x"], "result": {}}', "none of Prediction"),
        ('{"kind": "Failure", "result": 3}', "Failure"),
        ('{"name": "a.png", "kind": "Prediction", "result": {"source": "a.png"}}', "classes"),
        ('{"classes": 3}', "classes"),
        ("[" * 100_000, "it is n"),
        ('"\udcff"', "utf-8"),
    ],
)
def test_a_damaged_line_is_an_error_with_its_number_or_skipped(
    line: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "results.jsonl"
    text = "\n".join([record("a.png", prediction("a.png")), line, record("b.png", FAILURE), ""])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    reading = read_results(path)
    assert next(reading) == prediction("a.png")
    with pytest.raises(InputError, match=rf"line 2 of .*{reason}"):
        next(reading)
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        assert list(read_results(path, on_error="skip")) == [prediction("a.png"), FAILURE]
    assert "line 2 of" in caplog.text


@pytest.mark.parametrize("result", MIXED, ids=lambda result: type(result).__name__)
def test_the_record_of_a_run_is_read_and_refused_as_by_read_results(result: Any, tmp_path: Path) -> None:
    assert _run_record.Result is Result
    assert result_of(type(result).__name__, json.loads(result.to_json(arrays="omit"))) == without_arrays(result)
    document = json.loads(record("a.png", result))
    assert _run_record.RunRecord.model_validate(document).outcome == without_arrays(result)
    del document["result"]["source"]
    (tmp_path / "results.jsonl").write_text(json.dumps(document), "utf-8")
    for read in (
        partial(_run_record.RunRecord.model_validate, document),
        read_results(tmp_path / "results.jsonl").__next__,
    ):
        with pytest.raises((ValueError, InputError), match="source: Field required"):
            read()


def test_an_incomplete_last_line_is_said_to_be_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(record("a.png", FAILURE) + "\n" + record("b.png", FAILURE)[:-9], "utf-8")
    with pytest.raises(InputError, match=r"line 2 of .*incomplete"):
        list(read_results(path))
    assert list(read_results(path, on_error="skip")) == [FAILURE]


def test_a_wrong_path_or_argument_is_an_error_at_once(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(InputError, match="there is no file"):
            read_results(path)
    with pytest.raises(InputError, match="on_error"):
        read_results(tmp_path, on_error="return")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ .npz


def test_a_saved_explanation_is_read_back_exactly(tmp_path: Path) -> None:
    before = explanation()
    before.save(tmp_path / "why.npz")
    after = read_explanation(tmp_path / "why.npz")
    assert after == before
    assert after.overlay().size == before.overlay().size


def saved_with(path: Path, **changes: Any) -> Path:
    one = explanation()
    entries: dict[str, Any] = {"metadata": np.array(one.to_json(arrays="omit")), **one.arrays, **changes}
    np.savez(path, **{name: array for name, array in entries.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": None}, "no entry 'metadata"),
        ({"metadata": np.array("{")}, "not a saved explanation"),
        ({"metadata": np.array("[1]")}, "not a saved explanation"),
        ({"metadata": np.array('{"source": "a"}')}, "model"),
        ({"metadata": np.array([{}], dtype=object)}, "allow_pickle=False"),
        ({"contributions": np.zeros((4, 6), np.float32)}, "not of one image"),
        ({"contributions": np.zeros((4, 5), np.float64)}, "expected a float32"),
    ],
)
def test_other_archives_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_explanation(saved_with(tmp_path / "why.npz", **changes))


def test_the_certificate_is_checked_against_the_arrays(tmp_path: Path) -> None:
    changed = explanation().contributions.copy()
    changed[0, 0] += 1
    with pytest.raises(IncompleteExplanationError):
        read_explanation(saved_with(tmp_path / "why.npz", contributions=changed))


def test_files_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    whole = saved_with(tmp_path / "why.npz").read_bytes()
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("text", "utf-8")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "damaged.npz").write_bytes(whole[:90] + bytes(20) + whole[110:])
    for name in ("one.npy", "text.npz", "empty.npz", "half.npz", "damaged.npz", "."):
        with pytest.raises(InputError, match="is not a saved explanation"):
            read_explanation(tmp_path / name)
    with pytest.raises(InputError, match="there is no file"):
        read_explanation(tmp_path / "missing.npz")


def test_what_the_command_line_writes_is_read_back(photograph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the built-in model."""
    monkeypatch.chdir(photograph.parent)
    photograph.with_name("bad.png").write_text("no image")
    command = ["predict", ".", "--save", "npz", "--out", "out", "--format", "jsonl", "--device", "cpu"]
    done = CliRunner().invoke(main, command)
    Path("printed.jsonl").write_text(done.stdout, "utf-8")
    printed, recorded = list(read_results("printed.jsonl")), list(read_results("out/results.jsonl"))
    assert printed == recorded
    bad, good = sorted(recorded, key=lambda result: result.source)
    assert isinstance(bad, Failure)
    assert isinstance(good, Explained)
    assert without_arrays(read_explanation("out/photo.png.npz")) == good.explanations[0]
