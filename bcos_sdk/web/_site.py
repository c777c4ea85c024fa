"""Write a site: a folder of static files that runs a bundle in the browser."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from bcos_sdk._files import output_file
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import InputError, OutputError, OutputExistsError
from bcos_sdk.pages import index_page, page_files, sample_files
from bcos_sdk.web._library import library_files

__all__ = ["check_site", "write_site"]

PART = 8 << 20
"""Largest size in bytes of a file with weights. Larger ones are written in parts: some hosts refuse large files."""
RECORD = "site.json"
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'"
)
_FOOTER = (
    '<p><a href="runtime/onnxruntime-web.LICENSE.txt">Licence of ONNX Runtime Web</a>{samples} · '
    '<a href="model/manifest.json">Manifest of the model</a></p>'
)
_SAMPLE_LICENCES = ("LICENSES.md", "LICENSE.md", "LICENSES.txt", "LICENSE.txt", "LICENSE")
_SITE_OF_WORKER = 'const SITE = {version: "", policy: "", files: []};'
_TIME = (1980, 1, 1, 0, 0, 0)

Write = Callable[[str, bytes | memoryview], None]


def write_site(
    bundle: Bundle, folder: Path | str, *, samples: Path | str | None = None, force: bool = False, zipped: bool = False
) -> Path:
    """Write the site of a bundle into a folder, atomically; with `zipped` also as a zip archive beside it.

    `samples` is a folder of photographs to try. `force` replaces a folder that is a site.
    """
    target = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link
    _check_input(bundle)
    _check_target(target, force=force)
    library = library_files()
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(bundle, partial, library, sample_files(samples))
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {error.strerror or error}",
            source=str(target),
            hint="Check the permissions and the free space of its parent folder.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if zipped:
        _zip(target)
    return Path(folder)


def check_site(folder: Path | str, *, force: bool = False) -> None:
    """Raise now what `write_site` would raise later: the folder may not be replaced, or the library is missing."""
    _check_target(Path(folder), force=force)
    library_files()


def _write(bundle: Bundle, folder: Path, library: dict[str, bytes], samples: list[Path]) -> None:
    hashes: dict[str, str] = {}

    def write(name: str, contents: bytes | memoryview) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
        hashes[name] = hashlib.sha256(contents).hexdigest()

    _write_model(bundle, write)
    for name, contents in library.items():
        write(f"runtime/{name}", contents)
    for name, contents in page_files("bcos_sdk.web").items():
        if name != "service_worker.js":
            write(f"page/{name}", contents)
    for file in Path(str(files("bcos_sdk.web"))).glob("bcos/*.js"):
        write(f"bcos/{file.name}", file.read_bytes())
    for path in samples:
        write(f"samples/{path.name}", path.read_bytes())
    link = ""
    for path in [samples[0].parent / name for name in _SAMPLE_LICENCES] if samples else []:
        if path.is_file():
            write(f"samples/{path.name}", path.read_bytes())
            link = f' · <a href="samples/{path.name}">Licences of the samples</a>'
    write("index.html", index_page(_POLICY, _FOOTER.replace("{samples}", link)))
    record = {
        "name": bundle.manifest.model.name,
        "bundle_sha256": bundle.sha256,
        "samples": [path.name for path in samples],
    }
    write(RECORD, json.dumps(record, indent=2, ensure_ascii=False).encode("utf-8"))
    write("service_worker.js", _service_worker(hashes))


def _write_model(bundle: Bundle, write: Write) -> None:
    """The manifest, and those of its files that the page needs; large ones in parts, which parts.json lists."""
    manifest = bundle.manifest
    parts: dict[str, list[str]] = {}
    for name in (manifest.predict_graph, manifest.explain_graph, manifest.golden, manifest.weights):
        contents = bundle.contents[name]
        if len(contents) <= PART:
            write(f"model/{name}", contents)
            continue
        places = range(0, len(contents), PART)
        parts[name] = [f"{name}.part{number:03}" for number in range(len(places))]
        for part, place in zip(parts[name], places, strict=True):
            write(f"model/{part}", contents[place : place + PART])
    write("model/manifest.json", (bundle.path / "manifest.json").read_bytes())
    write("model/parts.json", json.dumps(parts, indent=2).encode("utf-8"))


def _service_worker(hashes: dict[str, str]) -> bytes:
    """The service worker with the names of all files. Its version changes whenever one of them does."""
    version = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode("utf-8")).hexdigest()
    script = page_files("bcos_sdk.web")["service_worker.js"].decode("utf-8")
    assert _SITE_OF_WORKER in script
    site = {"version": version, "policy": _POLICY, "files": sorted(hashes)}
    return script.replace(_SITE_OF_WORKER, f"const SITE = {json.dumps(site)};").encode("utf-8")


def _check_input(bundle: Bundle) -> None:
    manifest = bundle.manifest
    if manifest.input.channels == "none" or manifest.map is not None:
        reason = "returns a map" if manifest.map is not None else "takes arrays instead of pictures"
        raise InputError(
            f"the page cannot show {manifest.model.name}: this model {reason}",
            source=str(bundle.path),
            hint="Use the Python client, or `bcos-sdk serve`.",
        )


def _check_target(target: Path, *, force: bool) -> None:
    """Raise if the folder may not be replaced: without `force`, or because it is no site."""
    if not target.is_symlink() and (not target.exists() or (target.is_dir() and not any(target.iterdir()))):
        return
    is_site = target.is_dir() and not target.is_symlink() and (target / RECORD).is_file()
    if is_site and force:
        return
    raise OutputExistsError(
        f"{target} exists already" if is_site else f"{target} exists and is not a site",
        source=str(target),
        hint="Pass --force (force=True) to replace it." if is_site else "Choose another folder.",
    )


def _zip(folder: Path) -> None:
    """The same folder gives the same bytes."""
    with output_file(folder.with_name(f"{folder.name}.zip")) as partial, zipfile.ZipFile(partial, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}", _TIME)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
