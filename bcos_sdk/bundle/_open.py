"""Open a bundle: every file is a regular file inside the bundle with the recorded hash, every graph passes the gate and
holds the digest of the manifest. If the caller says whose bundle it must be, this is checked before the other files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from bcos_sdk._files import is_partial_of
from bcos_sdk._paths import builtin_dir
from bcos_sdk._untrusted import parse_json, typed_errors
from bcos_sdk.bundle._builtin import BUILTIN_SHA256, builtin_bundle
from bcos_sdk.bundle._bundle import Bundle
from bcos_sdk.bundle._contents import ContentsError, open_contents, release_pages
from bcos_sdk.bundle._graph_gate import LARGEST_GRAPH, check_graph
from bcos_sdk.bundle._graph_metadata import read_metadata
from bcos_sdk.bundle._manifest import SCHEMA_VERSION, FileRecord, Manifest, binding_digest
from bcos_sdk.bundle._signature import SIGNATURE, verify_signature
from bcos_sdk.bundle._trust import Verification, check_digest, parse_digest
from bcos_sdk.contract import LOGITS, MANIFEST_METADATA, WEIGHTS
from bcos_sdk.errors import BundleError, shown

__all__ = [
    "ENGINES",
    "MANIFEST",
    "has_manifest",
    "is_replaceable",
    "open_bundle",
    "parse_manifest",
    "read_manifest",
    "signed_hashes",
]

MANIFEST, ENGINES = "manifest.json", "engines"
_UNLISTED = {MANIFEST, ENGINES, SIGNATURE}
"""Names that the manifest does not list. Engines and the signature are not part of the export."""
_LARGEST_MANIFEST = 16 << 20
_LARGEST_SIGNATURE = 1 << 20
_LARGEST_FILE = 8 << 30


def has_manifest(folder: Path) -> bool:
    """Return whether the folder has a manifest, so that it is a bundle. `open_bundle` checks whether it is valid."""
    try:
        return (folder / MANIFEST).is_file()
    except (OSError, ValueError):  # the folder may not be read, or its name is not valid
        return False


def is_replaceable(folder: Path) -> bool:
    """Return whether `force` may replace the folder: it is empty, or has a manifest of this project, of any version."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        document = _parsed(_contents(folder, MANIFEST, _LARGEST_MANIFEST))
    except (ContentsError, OSError, ValueError):
        return False
    return isinstance(document, dict) and {"schema_version", "predict_graph", "explain_graph"} <= document.keys()


def open_bundle(path: Path | str, *, sha256: str | None = None, verify: Verification | None = None) -> Bundle:
    """Open the bundle in a folder and verify all its files, or raise a `BundleError` that names the fault.

    With `sha256` its manifest must have this digest, else a `HashMismatchError` is raised. With `verify` it must be
    signed by who is named there, else a `SignatureError` is raised.
    """
    folder = Path(path)
    digest = None if sha256 is None else parse_digest(sha256)
    with typed_errors(lambda reason: _invalid(folder, reason)):
        return _open(folder, digest, verify)


def read_manifest(path: Path | str) -> Manifest:
    """Read the manifest of a bundle without verifying the bundle's files, or raise a `BundleError`."""
    folder = Path(path)
    with typed_errors(lambda reason: _invalid(folder, reason)):
        return _manifest_of(folder, _read_document(folder, _contents(folder, MANIFEST, _LARGEST_MANIFEST)))


def parse_manifest(contents: bytes, source: str) -> Manifest:
    """The manifest in these bytes, which came from `source`; a `BundleError` if they are none."""
    with typed_errors(lambda reason: _invalid(source, reason)):
        return _manifest_of(source, _read_document(source, memoryview(contents)))


def signed_hashes(manifest: Manifest, sha256: str) -> dict[str, str]:
    """The SHA-256 of every file that a signature covers: the manifest, and the files that it lists."""
    return {name: record.sha256 for name, record in manifest.files.items()} | {MANIFEST: sha256}


def _open(folder: Path, sha256: str | None, verify: Verification | None) -> Bundle:
    if not folder.is_dir():
        raise _invalid(folder, "there is no such folder")
    written = _contents(folder, MANIFEST, _LARGEST_MANIFEST)
    for name, expected in BUILTIN_SHA256.items():
        if folder.resolve() == builtin_bundle(name):
            check_digest(folder, written, expected, "Install bcos-sdk again: its built-in model was changed.")
    if sha256 is not None:
        check_digest(folder, written, sha256, "Use the bundle that you chose the digest of, or choose its digest anew.")
    document = _read_document(folder, written)
    manifest = _manifest_of(folder, document)
    graphs = manifest.graphs
    if missing := {*graphs, manifest.weights, *manifest.goldens} - manifest.files.keys():
        raise _invalid(folder, f"the manifest has no hash of {', '.join(sorted(missing))}")
    _refuse_unlisted_files(folder, manifest)
    signature = _signature(folder)
    found = hashlib.sha256(written).hexdigest()
    if verify is not None:
        verify_signature(folder, signature, signed_hashes(manifest, found), verify)
    contents = {name: _verified(folder, name, record) for name, record in manifest.files.items()}
    for name in graphs:
        _check_graph(folder, name, contents[name], manifest, binding_digest(document))
    return Bundle(folder, manifest, contents, found, signature)


def _read_document(folder: Path | str, written: memoryview) -> dict[str, Any]:
    """The manifest as JSON, of the version that this package reads."""
    try:
        document = _parsed(written)
    except ValueError as error:
        raise _invalid(folder, f"{MANIFEST} is not JSON: {error}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BundleError(
            f"{folder} has a manifest of version {shown(version)}; this bcos-sdk reads version {SCHEMA_VERSION}",
            source=str(folder),
            hint="Export the model again, or install the version of bcos-sdk that wrote it.",
        )
    assert isinstance(document, dict)
    return document


def _parsed(written: memoryview) -> Any:
    return parse_json(bytes(written).decode("utf-8"))


def _manifest_of(folder: Path | str, document: dict[str, Any]) -> Manifest:
    with typed_errors(lambda reason: _invalid(folder, f"{MANIFEST} has faults: {reason}")):
        manifest = Manifest.model_validate(document)
        for limits in (manifest.parity_limits, *(one.parity_limits for one in manifest.more_sizes)):
            if missing := {LOGITS.name, WEIGHTS.name} - limits.keys():
                raise ValueError(f"parity_limits has no limit of {' and '.join(sorted(missing))}")
        return manifest


def _refuse_unlisted_files(folder: Path, manifest: Manifest) -> None:
    """Refuse files that the manifest does not list, and a manifest that lists itself or the signature."""
    if reserved := sorted({MANIFEST, SIGNATURE} & manifest.files.keys()):
        raise _invalid(folder, f"the manifest lists {', '.join(reserved)}")
    listed = {*_UNLISTED, *(name.partition("/")[0] for name in manifest.files)}
    names = sorted(path.name for path in folder.iterdir())
    if unlisted := [name for name in names if name not in listed and not is_partial_of(SIGNATURE, name)]:
        raise _invalid(folder, f"the manifest does not list {', '.join(unlisted[:5])}")


def _signature(folder: Path) -> memoryview | None:
    """The contents of the signature; None if there is none. Only `verify_signature` tells whether it is valid."""
    try:
        (folder / SIGNATURE).lstat()
    except FileNotFoundError:
        return None
    return _contents(folder, SIGNATURE, _LARGEST_SIGNATURE)


def _verified(folder: Path, name: str, record: FileRecord) -> memoryview:
    contents = _contents(folder, name, _LARGEST_FILE)
    if len(contents) != record.size or hashlib.sha256(contents).hexdigest() != record.sha256:
        raise _invalid(folder, f"{name} is not the file that was exported: its hash differs")
    release_pages(contents)
    return contents


def _contents(folder: Path, name: str, largest: int) -> memoryview:
    # Package installers may hard-link the files of the built-in bundle to their cache.
    in_package = folder.resolve().is_relative_to(builtin_dir())
    return open_contents(folder, name, largest=largest, may_be_hard_link=in_package)


def _check_graph(folder: Path, name: str, contents: memoryview, manifest: Manifest, digest: str) -> None:
    if not name.endswith(".onnx") or len(contents) > LARGEST_GRAPH:
        raise _invalid(folder, f"{name} is not an ONNX file of at most {LARGEST_GRAPH:,} bytes")
    try:
        check_graph(contents, weights=manifest.weights, weights_size=manifest.files[manifest.weights].size)
        found = read_metadata(contents).get(MANIFEST_METADATA)
    except ValueError as error:  # a GateError, or metadata that is not valid
        raise _invalid(folder, f"{name} is refused: {error}") from error
    if found != digest:
        raise _invalid(folder, f"{MANIFEST} is not the one that was exported with {name}: its digest differs")


def _invalid(folder: Path | str, reason: str) -> BundleError:
    return BundleError(
        f"{folder} is not a usable bundle: {reason}",
        source=str(folder),
        hint="Export the model again: bcos-sdk export MODEL -o DIR",
    )
