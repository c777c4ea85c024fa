"""`bcos-sdk web` and `export --web`: what is written, what is replaced, and what is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.bundles import copy_of, small_bundle
from support.sites import SAMPLES

from bcos_sdk._files import sha256_of
from bcos_sdk.bundle import BUILTIN_MODEL, builtin_bundle, open_bundle, read_manifest
from bcos_sdk.cli import main
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError, MissingExtraError, OutputExistsError
from bcos_sdk.pages import page_files
from bcos_sdk.web import _library, _site, write_site

LIBRARY = {
    "ort.wasm.min.js": b"wasm",
    "ort-wasm-simd-threaded.wasm": b"binary",
    "onnxruntime-web.LICENSE.txt": b"licence",
}


@pytest.fixture(autouse=True)
def _small_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes in place of the 40 MB of ONNX Runtime Web."""
    if "real_library" not in request.fixturenames:
        monkeypatch.setattr(_site, "library_files", lambda: dict(LIBRARY))


@pytest.fixture
def real_library() -> None:
    """Marks a test that uses ONNX Runtime Web itself."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_files_of_a_site(tmp_path: Path) -> None:
    target = tmp_path / "out" / "web"
    done = run("web", BUILTIN_MODEL, str(target), "--samples", str(SAMPLES), "--zip")
    assert done.exit_code == 0, done.output
    assert f"python -m http.server -d {target}" in done.output
    names = names_in(target)
    assert {"index.html", "site.json", "service_worker.js", "bcos/bcos.js", "page/main.js", "page/start.js"} <= names
    assert {name for name in names if name.startswith("model/")} == {
        f"model/{name}"
        for name in ("explain.onnx", "golden.npz", "manifest.json", "parts.json", "predict.onnx", "weights.bin")
    }
    assert {f"runtime/{name}" for name in LIBRARY} <= names
    record = json.loads((target / "site.json").read_text("utf-8"))
    assert record["samples"] == sorted(path.name for path in SAMPLES.glob("*.jpg"))
    assert record["bundle_sha256"] == sha256_of(builtin_bundle() / "manifest.json")
    assert {f"samples/{name}" for name in record["samples"]} | {"samples/LICENSES.md"} <= names
    page = (target / "index.html").read_text("utf-8")
    assert "{{" not in page
    assert "default-src &#x27;none&#x27;" in page
    assert 'href="samples/LICENSES.md"' in page
    worker = (target / "service_worker.js").read_text("utf-8")
    listed = json.loads(worker.partition("const SITE = ")[2].partition(";\n")[0])
    assert {*listed["files"], "service_worker.js"} == names, "the service worker keeps every file"
    with zipfile.ZipFile(target.with_name("web.zip")) as archive:
        assert {name.partition("/")[2] for name in archive.namelist()} == names
        assert archive.read("web/index.html") == (target / "index.html").read_bytes()


def test_the_same_model_gives_the_same_site_and_another_one_another_version(tmp_path: Path) -> None:
    for name, bundle in (("a", builtin_bundle()), ("b", builtin_bundle()), ("c", small_bundle().path)):
        write_site(open_bundle(bundle), tmp_path / name, zipped=True)
    first, second, other = (tmp_path / name / "service_worker.js" for name in "abc")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != other.read_bytes()
    assert names_in(tmp_path / "a") == names_in(tmp_path / "b")


def test_large_weights_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_site, "PART", 1_000_000)
    model = write_site(open_bundle(builtin_bundle()), tmp_path / "web") / "model"
    parts = json.loads((model / "parts.json").read_text("utf-8"))
    assert parts == {"weights.bin": ["weights.bin.part000", "weights.bin.part001", "weights.bin.part002"]}
    joined = b"".join((model / name).read_bytes() for name in parts["weights.bin"])
    assert joined == (builtin_bundle() / "weights.bin").read_bytes()
    assert not (model / "weights.bin").exists()


def test_only_a_site_is_replaced(tmp_path: Path) -> None:
    target, own = tmp_path / "web", tmp_path / "own"
    assert run("web", BUILTIN_MODEL, str(target)).exit_code == 0
    (target / "old").touch()
    again = run("web", BUILTIN_MODEL, str(target))
    assert again.exit_code == 2
    assert "--force" in again.output
    assert (target / "old").exists()
    assert run("web", BUILTIN_MODEL, str(target), "--force").exit_code == 0
    assert not (target / "old").exists()
    own.mkdir()
    (own / "thesis.tex").touch()
    for folder in (own, own / "thesis.tex"):
        with pytest.raises(OutputExistsError, match="is not a site"):
            write_site(open_bundle(builtin_bundle()), folder, force=True)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OutputExistsError):
        write_site(open_bundle(builtin_bundle()), tmp_path / "link", force=True)
    assert (own / "thesis.tex").exists()


def test_nothing_remains_of_a_site_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_site(open_bundle(builtin_bundle()), tmp_path / "web")
    before = names_in(target)

    def fail(*_arguments: Any) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_site, "_service_worker", fail)
    done = run("web", BUILTIN_MODEL, str(target), "--force")
    assert done.exit_code == 1
    assert "No space left on device" in done.output
    assert names_in(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["web"]


def as_map(manifest: Any) -> Any:
    return manifest.model_copy(update={"map": (manifest.classes, 1, 1)})


def as_arrays(manifest: Any) -> Any:
    return manifest.model_copy(update={"input": InputSpec.arrays(12, (32, 32))})


@pytest.mark.parametrize(("change", "reason"), [(as_map, "returns a map"), (as_arrays, "takes arrays")])
def test_models_that_the_page_cannot_show_are_refused(
    change: Callable[[Any], Any], reason: str, tmp_path: Path
) -> None:
    from dataclasses import replace

    bundle = open_bundle(builtin_bundle())
    with pytest.raises(InputError, match=reason):
        write_site(replace(bundle, manifest=change(bundle.manifest)), tmp_path / "web")
    assert not (tmp_path / "web").exists()


def test_a_damaged_bundle_gives_no_site(tmp_path: Path) -> None:
    bundle = copy_of(open_bundle(builtin_bundle()), tmp_path / "bundle")
    (bundle / "weights.bin").write_bytes(b"other")
    done = run("web", str(bundle), str(tmp_path / "web"))
    assert done.exit_code == 1
    assert "its hash differs" in done.output
    assert not (tmp_path / "web").exists()


def test_without_onnxruntime_web_the_error_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_library: None
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name in ("onnxruntime-web.json", "onnxruntime-web.LICENSE.txt"):
        shutil.copy(Path(_library.__file__).with_name(name), package)
    monkeypatch.setattr(_library, "_folder", lambda: package)
    with pytest.raises(MissingExtraError, match=r"ort.wasm.min.mjs is missing") as missing:
        write_site(open_bundle(builtin_bundle()), tmp_path / "web")
    assert "make browser" in (missing.value.hint or "")
    (package / "runtime").mkdir()
    for name in _library.library_record()["files"]:
        (package / "runtime" / name.rpartition("/")[2]).write_bytes(b"another version")
    with pytest.raises(MissingExtraError, match="is not the file of version"):
        write_site(open_bundle(builtin_bundle()), tmp_path / "web")
    assert not (tmp_path / "web").exists()


def test_the_licence_of_onnxruntime_web_is_in_the_site_and_in_the_package() -> None:
    root = Path(__file__).resolve().parents[2]
    text = Path(_library.__file__).with_name("onnxruntime-web.LICENSE.txt").read_bytes()
    assert text == (root / "LICENSES" / "MIT.txt").read_bytes()
    assert b"Microsoft" in text


def test_pages_share_their_components() -> None:
    shared = set(page_files("bcos_sdk.serve")) & set(page_files("bcos_sdk.web"))
    assert {"main.js", "certificate.js", "drawing.js", "base.css", "start.js"} <= shared


NETWORK = """
from torch import nn
from bcos_sdk.models.layers import BcosConv2d

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = BcosConv2d(6, 8, 3, padding=1), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))
"""


@pytest.mark.needs_torch
def test_export_writes_a_site_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_network.py").write_text(NETWORK, "utf-8")
    arguments = ("export", "own_network:Net", "-o", "bundle", "--max-batch", "1", "--input-size", "16")
    done = run(*arguments, "--web", "web", "--samples", str(SAMPLES))
    assert done.exit_code == 0, done.output
    assert "python -m http.server -d web" in done.output
    assert read_manifest("web/model") == read_manifest("bundle")
    again = run(*arguments, "--force", "--web", "bundle")
    assert again.exit_code == 2
    assert "is not a site" in again.output
    assert run(*arguments, "--samples", str(SAMPLES)).exit_code == 2
