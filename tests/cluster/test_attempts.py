"""An image that ends its worker: attempts are counted, and in the end it is a row with its error."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from support.batches import add_images, run_shards, settings, table_of
from support.poison import add_poison, poisoned_environment

from bcos_sdk.errors import BundleError, ClusterError
from bcos_sdk.ray import Folder, Start
from bcos_sdk.ray._alone import LoneExplainer
from bcos_sdk.ray._attempts import Attempt, Attempts, marker_prefix
from bcos_sdk.ray._delivery import Delivery
from bcos_sdk.ray._explainer import Explainer
from bcos_sdk.ray._parts import has_crashed
from bcos_sdk.ray._record import begin, replace_earlier
from bcos_sdk.ray._settings import WorkerSettings
from bcos_sdk.ray._shards import Outcome, Shard
from bcos_sdk.ray._workers import BatchWorker, ShardWorker

pyarrow = pytest.importorskip("pyarrow")


def _dead_worker(folder: Folder, session: str, name: str) -> Attempt:
    """An attempt that never ends, as if its process was killed."""
    return Attempt(folder, f"{marker_prefix(session)}{name}.json", name)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_an_image_that_ends_its_worker_is_a_failed_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = add_images(tmp_path / "images", 5)
    run_shards(tmp_path / "expected", images, Start.NEW)
    add_poison(images[3])
    monkeypatch.setenv("PYTHONPATH", poisoned_environment(tmp_path / "site"))
    folder = Folder(str(tmp_path / "out"))
    session = begin(folder, Start.NEW).session
    shard = Shard(f"part-{session}-0.parquet", tuple(images))
    for _ in range(2):
        _dead_worker(folder, session, shard.file)
    worker = ShardWorker(settings(), folder.place, session)
    (returned,) = worker(pyarrow.table({"shard": [shard.to_json()]})).to_pylist()
    assert returned["error"] is None
    outcome = Outcome.from_json(returned["outcome"])
    assert (outcome.done, outcome.failures) == (3, {"image_unreadable": 1, "worker_crashed": 1})
    assert folder.names() == ["_bcos_sdk_run.json", shard.file], "the marker is removed"
    rows, expected = table_of(tmp_path / "out"), table_of(tmp_path / "expected")
    killer, _ = rows.pop(images[3]), expected.pop(images[3])
    assert rows == expected
    assert (killer["status"], killer["error_code"], killer["image_sha256"]) == ("failed", "worker_crashed", None)
    assert killer["error_message"] == (
        f"{images[3]} ended each process that read and explained it, at last with signal {signal.SIGSEGV:d}"
    )
    assert has_crashed(folder, shard), "a later run begins with a process apart, and loses no worker"
    assert not has_crashed(folder, Shard(shard.file, tuple(images[:3])))


def test_attempts_are_counted_until_the_work_is_done(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    for expected in (False, False, True, True):
        attempt = _dead_worker(folder, "session", "part")
        assert attempt.alone is expected
    assert not _dead_worker(folder, "session", "other").alone
    attempt.begin("a.jpg")
    again = _dead_worker(folder, "session", "part")
    assert (again.deaths("a.jpg"), again.deaths("b.jpg")) == (1, 0), "the whole worker ended with a.jpg"
    with Attempts(folder, "session").counted("part") as last:
        assert (last.deaths("a.jpg"), last.alone) == (1, True)
    assert folder.names() == [f"{marker_prefix('session')}other.json"]
    with Attempts(folder, "session").counted("part") as first:
        assert not first.alone


def test_attempts_come_to_an_end(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    for _ in range(100):
        _dead_worker(folder, "session", "part")
    with pytest.raises(ClusterError, match="part was begun 100 times, and each time the worker ended"):
        _dead_worker(folder, "session", "part")


def test_markers_of_earlier_runs_are_removed_with_the_next(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    first = begin(folder, Start.NEW)
    _dead_worker(folder, first.session, "part")
    second = begin(folder, Start.RESUME)
    assert folder.names() == ["_bcos_sdk_run.json"]
    _dead_worker(folder, second.session, "part")
    replace_earlier(folder, second)
    assert len(folder.names()) == 2, "markers of this run stay"


def test_images_alone_have_the_rows_of_images_together(tmp_path: Path) -> None:
    images = [*add_images(tmp_path / "images", 5), str(tmp_path / "missing.png")]
    contents = [(path, Path(path).read_bytes()) for path in images[:5]]
    with Attempts(Folder(str(tmp_path / "out")), "session").counted("part") as attempt, Explainer(settings()) as client:
        with LoneExplainer(settings(), attempt) as alone:
            assert alone.device == client.device
            assert list(alone.rows_of(images)) == list(client.rows_of(images))
            assert list(alone.hashes(images)) == list(client.hashes(images))
            assert list(alone.rows_of_contents(contents)) == list(client.rows_of_contents(contents))
            killed = alone._child
            assert killed is not None
            killed.kill()
            assert list(alone.rows_of(images[:1])) == list(client.rows_of(images[:1])), "one kill from outside"
        assert killed.wait() != 0


def test_errors_of_the_model_end_the_run(tmp_path: Path) -> None:
    made = settings()
    (tmp_path / "empty").mkdir()
    wrong = WorkerSettings(Delivery("0" * 64, path=str(tmp_path / "empty")), made.question, made.work, made.client)
    with Attempts(Folder(str(tmp_path)), "session").counted("part") as attempt, pytest.raises(BundleError):
        LoneExplainer(wrong, attempt)


def test_a_model_that_crashes_while_it_opens_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcos_sdk.ray._alone._PROGRAM", "import os; os._exit(3)")
    with Attempts(Folder(str(tmp_path)), "session").counted("part") as attempt, pytest.raises(ClusterError) as caught:
        LoneExplainer(settings(), attempt)
    assert caught.value.message == "a process that opens the model on a worker ended with exit code 3"


def test_without_a_cache_batches_are_explained_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "file" / "cache"))
    (image,) = add_images(tmp_path / "images", 1)
    table = pyarrow.table({"path": [image], "bytes": [Path(image).read_bytes()]})
    (row,) = BatchWorker(settings(), "bytes", "path", "session")(table).to_pylist()
    assert row["status"] == "ok"
