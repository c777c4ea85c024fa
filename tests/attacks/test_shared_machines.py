"""Another user of the machine plants files and links, owns folders, or forges what this user has built."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attacks import HELD, attack
from support.bundles import copy_of, small_bundle
from support.gpu_machine import GpuMachine, use_worker
from support.predicting import run
from support.server import CONTENT, DIGEST, Server, serving

from bcos_sdk import Client
from bcos_sdk.backends import Device, open_backend
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.tensorrt import build_engines, key_for_gpu
from bcos_sdk.bundle import Bundle, builtin_bundle, find_bundle, open_bundle
from bcos_sdk.errors import BcosError, DownloadError, HashMismatchError, UntrustedFolderError
from bcos_sdk.registry import ModelSpec, WeightsSource, builtin_registry
from bcos_sdk.weights import download_weights

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither owners nor modes of this kind")

SECRET = b"the only copy of a thesis"
STRANGER = 54321
Give = Callable[..., None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Make paths look like those of another user: root gives them away, another user pretends to be a third one."""

    def to_a_stranger(*paths: Path) -> None:
        if os.geteuid() == 0:
            for path in paths:
                os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return to_a_stranger


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of this user that no attack may change."""
    path = tmp_path / "thesis.txt"
    path.write_bytes(SECRET)
    yield path
    assert path.read_bytes() == SECRET


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def spec(server: Server) -> ModelSpec:
    return spec_of(server)


def spec_of(server: Server, **fields: Any) -> ModelSpec:
    url = f"http://127.0.0.1:{server.server_port}/net.pth"
    source = WeightsSource(url=url, sha256_prefix=DIGEST[:10], licence="none", **fields)
    return builtin_registry()["resnet18"].model_copy(update={"weights": source})


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which everybody may create and replace files."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def planted(folder: Path, suffix: str = "") -> Path:
    return folder / f"net-{DIGEST[:10]}.pth{suffix}"


# ----------------------------------------------------------------------------------------------------------- downloads


@attack("shared machines", "a symbolic link in place of a partial download", before="overwrote the file it leads to")
def test_a_link_in_place_of_a_partial_file(spec: ModelSpec, shared: Path, victim: Path) -> None:
    planted(shared, ".part").symlink_to(victim)
    assert download_weights(spec, folder=shared).read_bytes() == CONTENT
    assert not planted(shared).is_symlink()


@attack("shared machines", "a hard link in place of a partial download", before="overwrote the linked file")
def test_a_hard_link_in_place_of_a_partial_file(spec: ModelSpec, shared: Path, victim: Path) -> None:
    os.link(victim, planted(shared, ".part"))
    assert download_weights(spec, folder=shared).read_bytes() == CONTENT


@attack("shared machines", "a FIFO in place of a partial download", before="blocked for good")
def test_a_fifo_in_place_of_a_partial_file(spec: ModelSpec, shared: Path) -> None:
    os.mkfifo(planted(shared, ".part"))
    assert download_weights(spec, folder=shared).read_bytes() == CONTENT


@attack("shared machines", "a complete partial file of another user", before="became the weights file, still theirs")
def test_a_partial_file_of_another_user(server: Server, spec: ModelSpec, shared: Path, give: Give) -> None:
    planted(shared, ".part").write_bytes(CONTENT)
    with planted(shared, ".part").open("rb") as theirs:
        give(planted(shared, ".part"))
        path = download_weights(spec, folder=shared)
        assert not os.path.samestat(path.stat(), os.fstat(theirs.fileno()))
    assert server.requests == [None], "nothing of their file is continued"


@attack("shared machines", "a partial file that others can write to", before="became the weights file")
def test_a_partial_file_that_others_can_change(server: Server, spec: ModelSpec, shared: Path) -> None:
    planted(shared, ".part").write_bytes(CONTENT)
    planted(shared, ".part").chmod(0o666)
    path = download_weights(spec, folder=shared)
    assert not stat.S_IMODE(path.stat().st_mode) & 0o022
    assert server.requests == [None]


@attack("shared machines", "right weights that another user owns and can change later", before="were used")
def test_weights_of_another_user(server: Server, spec: ModelSpec, shared: Path, give: Give) -> None:
    planted(shared).write_bytes(CONTENT)
    with planted(shared).open("rb") as theirs:
        give(planted(shared))
        path = download_weights(spec, folder=shared)
        assert not os.path.samestat(path.stat(), os.fstat(theirs.fileno()))
    assert server.requests == [None]


@attack("shared machines", "a symbolic link in place of the weights file", before=HELD)
def test_a_link_in_place_of_the_weights(spec: ModelSpec, shared: Path, victim: Path) -> None:
    planted(shared).symlink_to(victim)
    assert download_weights(spec, folder=shared).read_bytes() == CONTENT
    assert not planted(shared).is_symlink()


@attack("shared machines", "a symbolic link in place of the lock of a download", before=HELD)
def test_a_link_in_place_of_the_lock(spec: ModelSpec, shared: Path, victim: Path) -> None:
    planted(shared, ".lock").symlink_to(victim)
    with pytest.raises(DownloadError, match="cannot read or write"):
        download_weights(spec, folder=shared)


@attack("shared machines", "a server that sends more than the stated size", before="was received to its end")
@pytest.mark.parametrize("length", ["true", None])
def test_a_file_larger_than_stated(server: Server, shared: Path, length: str | None) -> None:
    server.length = length
    with pytest.raises(DownloadError, match="the server sends more than 1,000,000 bytes") as caught:
        download_weights(spec_of(server, size=1_000_000), folder=shared)
    assert not caught.value.retryable
    assert [path.suffix for path in shared.iterdir()] == [".lock"]


@attack("shared machines", "a server that sends more than any weights file has", before="was received to its end")
@pytest.mark.parametrize("length", ["true", None])
def test_a_file_larger_than_any(
    server: Server, spec: ModelSpec, shared: Path, length: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcos_sdk.weights._download.LARGEST_DOWNLOAD", 1_000_000, raising=False)
    server.length = length
    with pytest.raises(DownloadError, match="the server sends more than 1,000,000 bytes"):
        download_weights(spec, folder=shared)
    assert [path.suffix for path in shared.iterdir()] == [".lock"]


@attack("shared machines", "other weights with the same ten digits of the SHA-256", before="were used")
@pytest.mark.parametrize("place", ["cache", "server"])
def test_weights_that_were_made_to_have_the_published_digits(
    server: Server, spec: ModelSpec, shared: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding such a file takes minutes on a GPU. Here the hash function is replaced instead."""
    path = download_weights(spec, folder=shared)
    bad = b"weights with a back door"

    def digest(file: Path) -> str:
        contents = file.read_bytes()
        return DIGEST[:10] + "0" * 54 if contents == bad else hashlib.sha256(contents).hexdigest()

    monkeypatch.setattr("bcos_sdk.weights._download.sha256_of", digest)
    path.write_bytes(bad)
    if place == "cache":
        assert download_weights(spec, folder=shared).read_bytes() == CONTENT, "it is downloaded again"
        return
    server.content = bad
    with pytest.raises(HashMismatchError, match="is not the file that was used before"):
        download_weights(spec, folder=shared)


# ------------------------------------------------------------------------------------------------------ cache and store


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "store"))
    copy_of(small_bundle(), tmp_path / "store" / "net")
    return tmp_path / "store"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@attack("shared machines", "a cache made while the umask lets everybody write", before="everybody could write to it")
def test_the_cache_is_made_for_this_user_alone(spec: ModelSpec, cache: Path) -> None:
    old = os.umask(0)
    try:
        download_weights(spec)
    finally:
        os.umask(old)
    assert (mode(cache), mode(cache / "weights")) == (0o700, 0o700)
    assert not any(mode(file) & 0o022 for file in (cache / "weights").glob("*.pth"))


@attack("shared machines", "a cache that everybody can write to", before="was used as it was")
@pytest.mark.parametrize("name", ["", "weights"])
def test_a_cache_of_ours_that_others_can_change(
    spec: ModelSpec, cache: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "weights").mkdir(parents=True)
    (cache / name).chmod(0o777)
    download_weights(spec)
    assert mode(cache / name) == 0o755
    assert f"{cache / name} could be changed by other users; its mode is now 755" in caplog.text


@attack("shared machines", "a cache of another user", before="was used")
@pytest.mark.parametrize("name", ["", "weights"])
def test_a_cache_of_another_user(server: Server, spec: ModelSpec, cache: Path, name: str, give: Give) -> None:
    (cache / "weights").mkdir(parents=True)
    give(cache / name)
    with pytest.raises(UntrustedFolderError, match=r"(?s)belongs to user.*BCOS_SDK_CACHE"):
        download_weights(spec)
    assert server.requests == []


@attack("shared machines", "a symbolic link of another user in place of the cache", before="was followed")
def test_a_link_of_another_user_in_place_of_the_cache(spec: ModelSpec, cache: Path, tmp_path: Path, give: Give) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    give(cache)
    with pytest.raises(UntrustedFolderError, match="belongs to user"):
        download_weights(spec)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@attack("shared machines", "a stored model in a store of another user", before="ran")
def test_a_store_of_another_user(store: Path, give: Give) -> None:
    give(store)
    with pytest.raises(UntrustedFolderError, match=r"(?s)store belongs to user.*BCOS_SDK_STORE"):
        Client("net", device="cpu")


@attack("shared machines", "a model that another user has put into the store", before="ran")
def test_a_stored_model_of_another_user(store: Path, give: Give) -> None:
    give(store / "net")
    with pytest.raises(UntrustedFolderError, match="belongs to user"):
        Client("net", device="cpu")


@attack("shared machines", "a store of root that everybody can write to", before="was used")
def test_a_store_of_an_administrator_that_everybody_can_change(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    monkeypatch.setenv("BCOS_SDK_TRUSTED_OWNERS", str(os.getuid()))
    for folder in (store, store / "net"):
        folder.chmod(0o755)
    assert find_bundle("net").path == store / "net", "a shared store that only its owner can change is used"
    store.chmod(0o777)
    with pytest.raises(UntrustedFolderError, match=r"(?s)can be changed by other users: its mode is 777.*chmod go-w"):
        find_bundle("net")
    assert mode(store) == 0o777, "it is not ours to change"


@attack("shared machines", "a bundle in the current folder with the name of a stored model", before="ran instead of it")
def test_a_folder_with_the_name_of_a_stored_model(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_of(small_bundle("softmax"), tmp_path / "net")
    monkeypatch.chdir(tmp_path)
    with Client("net", device="cpu") as client:
        assert client.manifest.probability == "sigmoid"
    assert find_bundle("./net").manifest.probability == "softmax"


@attack("shared machines", "a bundle in the current folder with the name of the built-in model", before="ran instead")
def test_a_folder_with_the_name_of_the_builtin_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_of(small_bundle(), tmp_path / builtin_bundle().name)
    monkeypatch.chdir(tmp_path)
    assert find_bundle(builtin_bundle().name).path == builtin_bundle()


# ------------------------------------------------------------------------------------------------------------- engines


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


@pytest.fixture
def theirs(machine: GpuMachine, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engines of a bundle, as somebody else has built them and put them into it."""
    cache = tmp_path / "cache"
    with monkeypatch.context() as them:
        them.setenv("BCOS_SDK_CACHE", str(tmp_path / "their cache"))
        them.setenv("BCOS_SDK_CONFIG", str(tmp_path / "their key"))
        open_backend(bundle, "tensorrt").close()
    bundle.engines.mkdir()
    for file in (tmp_path / "their cache" / "engines").iterdir():
        if file.is_file():
            file.rename(bundle.engines / file.name)
    assert not cache.exists()
    machine.jobs.clear()
    return bundle.engines


@attack("shared machines", "a TensorRT engine that came with a bundle, the device named", before="its code ran")
def test_an_engine_of_a_stranger(machine: GpuMachine, bundle: Bundle, theirs: Path, tmp_path: Path) -> None:
    loaded = machine.trt.contexts
    assert len(list(theirs.glob("*.plan"))) == 2
    open_backend(bundle, "tensorrt").close()
    assert machine.builds == ["predict.onnx", "explain.onnx"], "engines of this user were built instead"
    assert machine.trt.contexts == loaded + 2
    assert len(list((tmp_path / "cache" / "engines").glob("*.plan"))) == 2


@attack("shared machines", "an engine with a forged mark that this user has built it", before="its code ran")
def test_a_forged_mark(machine: GpuMachine, bundle: Bundle, theirs: Path, tmp_path: Path) -> None:
    """Anybody who may write to the cache can make every file in it, but not the seal."""
    marks = tmp_path / "cache" / "engines" / "built-here"
    marks.mkdir(parents=True)
    for file in theirs.glob("*.json"):
        record = json.loads(file.read_text("utf-8"))
        (marks / record["plan_sha256"]).touch()
        file.rename(marks.parent / file.name)
        file.with_suffix(".plan").rename(marks.parent / file.with_suffix(".plan").name)
    assert open_backend(bundle, "auto").device == Device(CPU)


@attack("shared machines", "an engine of this user with the record of another model", before="ran as the other model")
def test_an_engine_with_an_edited_record(machine: GpuMachine, bundle: Bundle, tmp_path: Path) -> None:
    other = open_bundle(copy_of(small_bundle("softmax"), tmp_path / "other"))
    open_backend(bundle, "tensorrt").close()
    for file in (tmp_path / "cache" / "engines").glob("*.json"):
        record = json.loads(file.read_text("utf-8"))
        graph = other.path / f"{file.name.partition('.')[0]}.onnx"
        record["key"] = key_for_gpu(other, graph, "tensorrt", 0, tf32=False).model_dump(mode="json")
        file.write_text(json.dumps(record), "utf-8")
    assert open_backend(other, "auto").device == Device(CPU)


@attack("shared machines", "a link in place of the partial file of an engine", before="overwrote the file it leads to")
def test_a_link_in_place_of_the_partial_file_of_an_engine(
    machine: GpuMachine, bundle: Bundle, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is planted while TensorRT builds, which takes minutes. The name of the plan is known from its key."""
    built = build_engines(bundle)
    for name, _ in built:
        (bundle.engines / name).with_suffix(".json").unlink()
    plan = b"a plan"

    def work(job: dict[str, Any]) -> dict[str, Any]:
        for name, _ in built:
            link = bundle.engines / f".{name}.partial"
            link.unlink(missing_ok=True)
            link.symlink_to(victim)
        Path(job["plan"]).write_bytes(plan)
        return {"peak_memory": None, "plan_sha256": hashlib.sha256(plan).hexdigest(), "size": len(plan)}

    use_worker(monkeypatch, lambda job: work(job) if job["task"] == "build" else machine.work(job))
    assert [record.size for _, record in build_engines(bundle)] == [len(plan)] * 2


# -------------------------------------------------------------------------------------------------------------- outputs


@attack("shared machines", "a link in place of the record that a run continues", before="emptied the file it leads to")
@pytest.mark.parametrize("name", ["results.jsonl", ".report.jsonl"])
def test_a_link_in_place_of_a_record(images: Path, victim: Path, name: str) -> None:
    assert run(images, "--report", "--out", "out").exit_code == 0
    (Path("out") / name).unlink()
    (Path("out") / name).symlink_to(victim)
    (images / "a.png").touch()
    result = run(images, "--report", "--out", "out", "--resume")
    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, (SystemExit, BcosError))


@attack("shared machines", "a link in place of the lock of an output folder", before=HELD)
def test_a_link_in_place_of_the_lock_of_an_output_folder(images: Path, victim: Path) -> None:
    Path("out").mkdir()
    (Path("out") / ".bcos-sdk.lock").symlink_to(victim)
    assert run(images, "--out", "out").exit_code == 1
