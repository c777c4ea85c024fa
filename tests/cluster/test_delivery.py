"""How a bundle reaches a worker: whole, verified by its hash, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from support.batches import settings
from support.bundles import small_bundle

import bcos_sdk
from bcos_sdk import Client
from bcos_sdk.errors import BundleError, ClusterError, HashMismatchError, InputError, UnknownTargetError
from bcos_sdk.ray import Question, open_model
from bcos_sdk.ray._delivery import Delivery, contents_of
from bcos_sdk.ray._delivery import _install as install
from bcos_sdk.ray._explainer import Explainer
from bcos_sdk.ray._settings import WorkerSettings


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def url() -> str:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("pyarrow")
    place = f"memory://{uuid4().hex}/bundle"
    for path in small_bundle().path.rglob("*"):
        if path.is_file():
            name = path.relative_to(small_bundle().path).as_posix()
            fsspec.filesystem("memory").pipe_file(f"{place}/{name}", path.read_bytes())
    return place


def test_a_bundle_from_a_store(url: str) -> None:
    bundle = open_model(url, sha256=small_bundle().sha256, verify=None)
    assert bundle.sha256 == small_bundle().sha256
    delivery = Delivery(bundle.sha256, url=url)
    place = delivery.folder()
    assert place == bundle.path, "it is downloaded once for each machine"
    with Client(place, sha256=bundle.sha256) as client:
        assert client.manifest == small_bundle().manifest


def test_another_bundle_is_refused(url: str) -> None:
    with pytest.raises(HashMismatchError, match="is not the expected bundle"):
        open_model(url, sha256="0" * 64, verify=None)
    wrong = Delivery("0" * 64, url=url)
    with pytest.raises(HashMismatchError):
        Explainer(WorkerSettings(wrong, Question(), settings().work, {"device": "cpu"}))


def test_a_folder_without_a_manifest_is_no_bundle(url: str) -> None:
    import fsspec

    fsspec.filesystem("memory").rm(f"{url}/manifest.json")
    with pytest.raises(InputError, match=r"it has no manifest\.json"):
        open_model(url, sha256=None, verify=None)


def test_a_damaged_copy_is_replaced(tmp_path: Path, url: str) -> None:
    bundle = small_bundle()
    place = Delivery(bundle.sha256, url=url).folder()
    (place / bundle.manifest.weights).write_bytes(b"half")
    assert Delivery(bundle.sha256, url=url).folder() == place
    assert (place / bundle.manifest.weights).read_bytes() == bytes(bundle.weights)
    assert [path.name for path in place.parent.iterdir()] == [bundle.sha256]


def test_the_contents_of_a_bundle_are_a_bundle(tmp_path: Path) -> None:
    files = contents_of(small_bundle())
    (tmp_path / "there").mkdir()
    install(files, tmp_path / "there" / small_bundle().sha256)
    with Client(tmp_path / "there" / small_bundle().sha256, sha256=small_bundle().sha256):
        pass
    with pytest.raises(BundleError, match="is not inside the bundle"):
        install({**files, "../outside": b""}, tmp_path / "there" / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]
    assert len(list((tmp_path / "there").iterdir())) == 1


def test_another_version_of_the_package_is_refused() -> None:
    made = settings()
    other = WorkerSettings(made.delivery, made.question, made.work, made.client, version="0.0.1")
    with pytest.raises(ClusterError, match=f"a worker has bcos-sdk {bcos_sdk.__version__}, and this run was started"):
        Explainer(other)


def test_wrong_targets_are_refused_before_anything_starts() -> None:
    with pytest.raises(UnknownTargetError):
        settings(Question(targets=["no such class"]))
    with pytest.raises(InputError, match="expected targets for all images"):
        settings(Question(targets=[["fox"], ["lynx"]]))
    with pytest.raises(InputError, match="pictures has 'npz'"):
        settings(Question(pictures=("npz",)))
    with pytest.raises(InputError, match="top_k"):
        settings(Question(top_k=0))


def test_a_changed_manifest_is_noticed(tmp_path: Path) -> None:
    from bcos_sdk.bundle import open_bundle

    folder = tmp_path / "bundle"
    shutil.copytree(small_bundle().path, folder)
    bundle = open_bundle(folder)
    (folder / "manifest.json").write_bytes(b"{}")
    with pytest.raises(BundleError, match="was changed while it was read"):
        contents_of(bundle)
