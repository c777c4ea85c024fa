"""Folders on this machine and in stores: whole files, typed errors, exact names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from bcos_sdk.errors import InputError, OutputError, OutputExistsError
from bcos_sdk.limits import Limits
from bcos_sdk.ray import Folder, Start, check_start
from bcos_sdk.ray._explainer import load
from bcos_sdk.ray._record import RECORD, begin, discard, file_names, read_record, replace_earlier
from bcos_sdk.ray._storage import read_bytes
from bcos_sdk.results import Failure

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")

ODD = ("a b.jpg", "sub/ü#1%20.jpg", "sub/deep/c?.jpg")


@pytest.fixture
def store() -> Iterator[str]:
    """A folder in a store of fsspec that lives in this process."""
    import fsspec

    place = f"memory://{uuid4().hex}/images"
    files = fsspec.filesystem("memory")
    for name in (*ODD, ".hidden/x.jpg", "sub/.thumb.jpg"):
        files.pipe_file(f"{place}/{name}", name.encode())
    yield place
    files.rm(place, recursive=True)


def test_names_in_a_store_are_exact(store: str) -> None:
    listed = list(Folder(store).files_below())
    assert sorted(listed) == sorted(f"{store}/{name}" for name in ODD)
    assert {read_bytes(place, 100) for place in listed} == {name.encode() for name in ODD}
    assert list(Folder(f"{store}/{ODD[1]}").files_below()) == [f"{store}/{ODD[1]}"]


def test_a_store_without_the_folder(store: str) -> None:
    with pytest.raises(InputError, match=r"there is no memory://.*/nothing"):
        list(Folder(f"{store}/nothing").files_below())
    with pytest.raises(InputError, match=r"cannot open nosuchstore://bucket"):
        Folder("nosuchstore://bucket/images")


def test_images_that_cannot_be_read_are_failures(store: str) -> None:
    loaded = load(f"{store}/missing.jpg", Limits())
    assert loaded.sha256 is None
    assert isinstance(loaded.image, Failure)
    assert loaded.image.message == f"there is no file {store}/missing.jpg"
    assert load(f"{store}/{ODD[0]}", Limits(bytes=3)).sha256 is None


@pytest.mark.parametrize("kind", ["local", "store"])
def test_files_are_written_whole_and_removed(kind: str, tmp_path: Path, store: str) -> None:
    folder = Folder(str(tmp_path / "new" / "out") if kind == "local" else f"{store}/out")
    assert folder.names() == []
    assert folder.read("a.json") is None
    folder.write("a.json", b"one")
    folder.write("a.json", b"two")
    (tmp_path / "part").write_bytes(b"x" * 100_000)
    folder.upload(tmp_path / "part", "b.parquet")
    assert folder.names() == ["a.json", "b.parquet"]
    assert folder.read("a.json") == b"two"
    assert folder.read("b.parquet") == b"x" * 100_000
    folder.remove("a.json")
    folder.remove("a.json")
    assert folder.names() == ["b.parquet"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError, match="cannot use"):
        Folder(str(tmp_path / "file" / "out")).write("a", b"")


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert folder.parquet("none.parquet") is None
    folder.write("part.parquet", b"half a file")
    with pytest.raises(InputError, match=r"part\.parquet in .* is not a Parquet file"):
        folder.parquet("part.parquet")


@pytest.mark.parametrize("kind", ["local", "store"])
def test_the_record_of_runs(kind: str, tmp_path: Path, store: str) -> None:
    folder = Folder(str(tmp_path / "out") if kind == "local" else f"{store}/out")
    check_start(folder, Start.NEW)
    first = begin(folder, Start.NEW)
    folder.write(f"part-{first.session}-0.parquet", b"")
    with pytest.raises(OutputExistsError, match="has the record of an earlier run"):
        check_start(folder, Start.NEW)
    check_start(folder, Start.RESUME)
    second = begin(folder, Start.RESUME)
    folder.write(f"part-{second.session}-0.parquet", b"")
    folder.write("mine.parquet", b"")
    assert len(file_names(folder, read_record(folder))) == 2
    third = begin(folder, Start.OVERWRITE)
    folder.write(f"part-{third.session}-0.parquet", b"")
    assert len(file_names(folder, read_record(folder))) == 2, "the files of earlier runs still count"
    fourth = begin(folder, Start.OVERWRITE)
    assert f"part-{third.session}-0.parquet" not in folder.names(), "the third run was killed before it replaced them"
    folder.write(f"part-{fourth.session}-0.parquet", b"")
    discard(folder, fourth)
    assert len(folder.names()) == 4
    folder.write(f"part-{fourth.session}-0.parquet", b"")
    replace_earlier(folder, fourth)
    assert folder.names() == sorted([RECORD, "mine.parquet", f"part-{fourth.session}-0.parquet"])


def test_folders_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write("other.parquet", b"")
    for start in Start:
        with pytest.raises(OutputExistsError, match=r"has the file other\.parquet"):
            check_start(folder, start)
    folder.write(RECORD, b"{}")
    with pytest.raises(InputError, match="is not the record of a run"):
        check_start(folder, Start.RESUME)
