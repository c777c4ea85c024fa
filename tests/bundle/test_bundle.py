"""Bundles that were changed, that refer to files outside, or whose export was interrupted."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bcos_sdk._files import sha256_of
from bcos_sdk.bundle import (
    Bundle,
    BundleWriter,
    Manifest,
    ModelRecord,
    find_bundle,
    has_manifest,
    latest_stored_bundle,
    open_bundle,
    stored_bundles,
)
from bcos_sdk.contract import InputSpec, Layout
from bcos_sdk.errors import BundleError, BundleExistsError, OutputError

GRAPH = b"\x08\x0a"  # the smallest ONNX file: a ModelProto with the field ir_version = 10
FILES = {"predict.onnx": GRAPH, "explain.onnx": GRAPH, "weights.bin": b"weights", "golden.npz": b"golden"}


def manifest() -> Manifest:
    return Manifest(
        model=ModelRecord(name="net", module="tests.Net", weights_sha256="0" * 64),
        input=InputSpec(size=(8, 8), resize=None, crop=None),
        classes=2,
        labels=("cat", "dog"),
        probability="sigmoid",
        bias_terms=("logit_bias",),
        ranks=2,
        max_batch=4,
        tolerance=1e-5,
        predict_graph="predict.onnx",
        explain_graph="explain.onnx",
        weights="weights.bin",
        golden="golden.npz",
        opset=18,
        ir_version=10,
        versions={"bcos-sdk": "0"},
        rewrites={},
        parity=(),
        parity_limits={"logits": 1e-5, "weights": 1e-4},
    )


def write(path: Path, *, force: bool = False) -> Bundle:
    with BundleWriter(path, force=force) as writer:
        for name, contents in FILES.items():
            (writer.folder / name).write_bytes(contents)
        return writer.finish(manifest())


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle").path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def edit(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = bundle / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_written_bundle_can_be_opened(bundle: Path) -> None:
    opened = open_bundle(bundle)
    assert opened.manifest.labels == ("cat", "dog")
    assert opened.explain_graph.read_bytes().startswith(GRAPH)
    assert names(bundle.parent) == ["bundle"], "no other file remains"


def test_the_explain_graph_of_each_layout(bundle: Path) -> None:
    opened = open_bundle(bundle)
    assert opened.explain_graph_for(Layout.GRID) == (opened.explain_graph, Layout.GRID)
    assert opened.explain_graph_for(Layout.ROWS) == (bundle / "explain.onnx", Layout.GRID)
    rows = opened.manifest.model_copy(update={"explain_rows_graph": "rows.onnx"})
    assert Bundle(bundle, rows).explain_graph_for(Layout.ROWS) == (bundle / "rows.onnx", Layout.ROWS)


def test_a_folder_with_a_manifest_is_a_bundle(bundle: Path, tmp_path: Path) -> None:
    assert has_manifest(bundle)
    assert not has_manifest(tmp_path)
    assert not has_manifest(tmp_path / ("n" * 300)), "the name is too long for the file system"


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused(bundle: Path, name: str) -> None:
    (bundle / name).write_bytes(FILES[name][:-1] + b"!")
    with pytest.raises(BundleError, match=f"{name} is not the file that was exported"):
        open_bundle(bundle)


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_missing_file_is_refused(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing"):
        open_bundle(bundle)


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["weights.bin", "manifest.json"])
def test_links_are_refused(bundle: Path, tmp_path: Path, link: Callable[[Path, Path], None], name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(bundle / name, elsewhere)
    link(elsewhere, bundle / name)
    with pytest.raises(BundleError, match=f"{name} is"):
        open_bundle(bundle)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "..\\outside", "./weights.bin", "", "."])
def test_paths_outside_the_bundle_are_refused(bundle: Path, name: str) -> None:
    record = {"sha256": "0" * 64, "size": 1}
    edit(bundle, lambda document: document["files"].update({name: record}))
    with pytest.raises(BundleError, match="inside the bundle"):
        open_bundle(bundle)
    edit(bundle, lambda document: document["files"].pop(name))
    edit(bundle, lambda document: document.update(weights=name))
    with pytest.raises(BundleError, match="inside the bundle"):
        open_bundle(bundle)


@pytest.mark.parametrize("version", [0, 1, 3, "2", None, True])
def test_other_versions_are_refused(bundle: Path, version: object) -> None:
    edit(bundle, lambda document: document.update(schema_version=version))
    with pytest.raises(BundleError, match="reads version 2"):
        open_bundle(bundle)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_a_manifest_that_is_not_a_json_object_is_refused(bundle: Path, text: str) -> None:
    (bundle / "manifest.json").write_text(text)
    with pytest.raises(BundleError):
        open_bundle(bundle)


def test_the_error_names_each_faulty_key(bundle: Path) -> None:
    edit(bundle, lambda document: document.update(classes=-1, surprise=1))
    with pytest.raises(BundleError, match=r"classes: .*; surprise: "):
        open_bundle(bundle)


def test_a_graph_without_a_hash_in_the_manifest_is_refused(bundle: Path) -> None:
    edit(bundle, lambda document: document["files"].pop("explain.onnx"))
    with pytest.raises(BundleError, match=r"no hash of explain\.onnx"):
        open_bundle(bundle)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["dog", "cat"]},
        {"input": {"size": [8, 8], "resize": 9, "crop": [8, 8]}},
        {"probability": "softmax"},
        {"bias_terms": ["other"]},
        {"tolerance": 2e-5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_manifest_is_refused(bundle: Path, change: dict[str, Any]) -> None:
    edit(bundle, lambda document: document.update(change))
    with pytest.raises(BundleError, match=r"manifest\.json is not the one that was exported with predict\.onnx"):
        open_bundle(bundle)


def test_a_graph_of_another_export_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Its hash in the manifest was adapted, but it belongs to a manifest with other labels."""
    with BundleWriter(tmp_path / "other") as writer:
        for name, contents in FILES.items():
            (writer.folder / name).write_bytes(contents)
        other = writer.finish(manifest().model_copy(update={"labels": ("dog", "cat")}))
    shutil.copy(other.explain_graph, bundle / "explain.onnx")
    record = other.manifest.files["explain.onnx"].model_dump()
    edit(bundle, lambda document: document["files"].update({"explain.onnx": record}))
    with pytest.raises(BundleError, match=r"exported with explain\.onnx: its digest differs"):
        open_bundle(bundle)


@pytest.mark.parametrize("contents", [GRAPH + b"\x72\x02\x0a\x7f", GRAPH + b"\x72\x03\x0a\x01\xff"])
def test_metadata_that_is_not_valid_is_refused(bundle: Path, contents: bytes) -> None:
    path = bundle / "predict.onnx"
    path.write_bytes(contents)
    record = {"sha256": sha256_of(path), "size": len(contents)}
    edit(bundle, lambda document: document["files"].update({"predict.onnx": record}))
    with pytest.raises(BundleError, match=r"predict\.onnx is refused"):
        open_bundle(bundle)


@pytest.mark.parametrize("contents", [b"text", b"\x08", b"\x72\x7f", b"\x0f", b"\xff" * 20])
def test_a_graph_that_is_not_protobuf_is_refused(bundle: Path, contents: bytes) -> None:
    (bundle / "predict.onnx").write_bytes(contents)
    record = {"sha256": sha256_of(bundle / "predict.onnx"), "size": len(contents)}
    edit(bundle, lambda document: document["files"].update({"predict.onnx": record}))
    with pytest.raises(BundleError, match=r"predict\.onnx is refused: it is not an ONNX file"):
        open_bundle(bundle)


def test_the_digest_does_not_depend_on_the_order_of_keys_or_on_spaces(bundle: Path) -> None:
    text = (bundle / "manifest.json").read_text()
    document = json.loads(text)
    (bundle / "manifest.json").write_text(json.dumps(dict(reversed(document.items())), indent=7))
    assert open_bundle(bundle).manifest.digest == Manifest.model_validate_json(text).digest


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        open_bundle(tmp_path / "nowhere")


def test_an_error_while_writing_leaves_no_files(tmp_path: Path) -> None:
    def fail() -> None:
        with BundleWriter(tmp_path / "bundle") as writer:
            (writer.folder / "predict.onnx").write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path) == []


def test_an_existing_bundle_is_replaced_only_with_force(bundle: Path) -> None:
    with pytest.raises(BundleExistsError):
        write(bundle)
    assert write(bundle, force=True).path == bundle
    assert names(bundle.parent) == ["bundle"]


def test_force_replaces_only_bundles_and_empty_folders(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(BundleExistsError, match="not a bundle"):
        write(app, force=True)
    (tmp_path / "empty").mkdir()
    assert write(tmp_path / "empty", force=True).path == tmp_path / "empty"


def test_links_and_the_root_folder_are_refused_as_targets(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for place in (tmp_path / "link", tmp_path / "dangling", Path("/")):
        with pytest.raises(BundleExistsError):
            write(place, force=True)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BundleError, match="cannot write beside"):
        write(tmp_path / "file" / "bundle")


def test_a_bundle_that_was_being_replaced_is_restored(bundle: Path) -> None:
    """A process was killed between moving the old bundle away and moving the new one in."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    bundle.rename(bundle.with_name(f".bundle.partial-{int(gone.stdout)}-replaced"))
    with pytest.raises(BundleExistsError), BundleWriter(bundle):
        pass
    assert open_bundle(bundle).manifest.classes == 2


def test_an_interrupt_while_a_bundle_is_replaced_restores_it(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if target == bundle and not self.name.endswith("-replaced"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(bundle, force=True)
    assert open_bundle(bundle).manifest.classes == 2
    assert names(bundle.parent) == ["bundle"]


def test_the_next_writer_removes_the_files_of_a_killed_process(tmp_path: Path) -> None:
    program = f"""
import os, signal
from bcos_sdk.bundle import BundleWriter
with BundleWriter({str(tmp_path / "bundle")!r}) as writer:
    (writer.folder / "weights.bin").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert [name.startswith(".bundle.partial-") for name in names(tmp_path)] == [True]
    with pytest.raises(BundleError):
        open_bundle(tmp_path / "bundle")
    write(tmp_path / "bundle")
    assert names(tmp_path) == ["bundle"]


def test_an_export_to_the_store_removes_the_files_of_every_killed_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path))
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    write(tmp_path / "replaced").path.rename(tmp_path / f".replaced.partial-{int(gone.stdout)}-replaced")
    for process in (int(gone.stdout), os.getppid()):
        (tmp_path / f".other.partial-{process}").mkdir()
    write(tmp_path / "bundle")
    assert names(tmp_path) == [f".other.partial-{os.getppid()}", "bundle", "replaced"], "one export is still running"
    assert open_bundle(tmp_path / "replaced").manifest.classes == 2


def test_outside_the_store_only_the_files_of_the_same_target_are_removed(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / f".other.partial-{int(gone.stdout)}").mkdir()
    write(tmp_path / "bundle")
    assert names(tmp_path) == [f".other.partial-{int(gone.stdout)}", "bundle"]


def test_a_full_disk_is_an_output_error_and_leaves_no_files(tmp_path: Path) -> None:
    def fail() -> None:
        with BundleWriter(tmp_path / "bundle") as writer:
            (writer.folder / "predict.onnx").write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputError, match=r"cannot write the bundle .*: No space left on device"):
        fail()
    assert names(tmp_path) == []


def test_a_store_that_cannot_be_read_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "file"))
    assert stored_bundles() == []
    assert latest_stored_bundle() is None
    with pytest.raises(BundleError, match="there is no exported model 'net'"):
        find_bundle("net")
