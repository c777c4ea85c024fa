"""Open a bundle: check that every file is a regular file inside the bundle with the recorded hash, and that every graph
has the digest of the manifest."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from bcos_sdk._files import sha256_of
from bcos_sdk._paths import builtin_dir
from bcos_sdk.bundle._golden import Golden
from bcos_sdk.bundle._graph_metadata import read_metadata
from bcos_sdk.bundle._manifest import SCHEMA_VERSION, FileRecord, Manifest, binding_digest
from bcos_sdk.contract import EXPLAIN_INPUTS, MANIFEST_METADATA, PREDICT_INPUTS, Layout
from bcos_sdk.errors import BundleError, first_faults

__all__ = ["MANIFEST", "Bundle", "InputShapes", "has_manifest", "is_replaceable", "open_bundle"]

MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 16 << 20
InputShapes: TypeAlias = dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were verified when it was opened."""

    path: Path
    manifest: Manifest

    @property
    def predict_graph(self) -> Path:
        return self.path / self.manifest.predict_graph

    @property
    def explain_graph(self) -> Path:
        """The explain graph in the layout GRID. Every bundle has it."""
        return self.path / self.manifest.explain_graph

    @property
    def explain_rows_graph(self) -> Path | None:
        """The explain graph in the layout ROWS; None if the bundle does not have it."""
        name = self.manifest.explain_rows_graph
        return None if name is None else self.path / name

    def explain_graph_for(self, layout: Layout) -> tuple[Path, Layout]:
        """The explain graph in this layout and its layout. Bundles without a graph in ROWS have GRID instead."""
        rows = self.explain_rows_graph
        return (self.explain_graph, Layout.GRID) if layout is Layout.GRID or rows is None else (rows, Layout.ROWS)

    @property
    def graphs(self) -> tuple[Path, ...]:
        """All ONNX graphs of the bundle."""
        return tuple(filter(None, (self.predict_graph, self.explain_graph, self.explain_rows_graph)))

    @property
    def engines(self) -> Path:
        """The folder of TensorRT engines. The manifest does not list them: each engine has its own record beside it."""
        return self.path / "engines"

    def golden(self) -> Golden:
        """Read the golden record, which the self-test compares every device with."""
        return Golden.read(self.path / self.manifest.golden)

    def input_shapes(self, graph: Path) -> InputShapes:
        """Smallest, most frequent and largest shape of each input of a graph: the profile of its engine."""
        largest, sizes = self.manifest.max_batch, self.manifest.sizes
        batches = ((1, (1, 1)), (largest, (largest, 1)), (largest, (largest, largest)))
        ports = EXPLAIN_INPUTS if graph == self.explain_graph else PREDICT_INPUTS
        smallest, usual, most = ({port.name: port.shape(*batch, sizes) for port in ports} for batch in batches)
        return {name: (smallest[name], usual[name], most[name]) for name in smallest}


def has_manifest(folder: Path) -> bool:
    """Return whether the folder has a manifest, so that it is a bundle. `open_bundle` checks whether it is valid."""
    try:
        return (folder / MANIFEST).is_file()
    except OSError:  # the folder may not be read, or its name is not valid
        return False


def is_replaceable(folder: Path) -> bool:
    """Return whether `force` may replace the folder: it is empty, or has a manifest of this project, of any version."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        document = _read_json(folder)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"schema_version", "predict_graph", "explain_graph"} <= document.keys()


def open_bundle(path: Path | str) -> Bundle:
    """Open the bundle in a folder and verify all its files, or raise a `BundleError` that names the fault."""
    folder = Path(path)
    try:
        return _open(folder)
    except OSError as error:
        raise _invalid(folder, f"it cannot be read: {error.strerror}") from error


def _open(folder: Path) -> Bundle:
    if not folder.is_dir():
        raise _invalid(folder, "there is no such folder")
    document = _read_document(folder)
    manifest = _manifest_of(folder, document)
    bundle = Bundle(folder, manifest)
    needed = {path.relative_to(folder).as_posix() for path in bundle.graphs} | {manifest.weights, manifest.golden}
    if missing := needed - manifest.files.keys():
        raise _invalid(folder, f"the manifest has no hash of {', '.join(sorted(missing))}")
    for name, record in manifest.files.items():
        _check_file(folder, name, record)
    for graph in bundle.graphs:
        _check_binding(folder, graph, binding_digest(document))
    return bundle


def _read_document(folder: Path) -> dict[str, Any]:
    """The manifest as JSON, of the version that this package reads."""
    _check_regular(folder, MANIFEST)
    if (folder / MANIFEST).stat().st_size > _LARGEST_MANIFEST:
        raise _invalid(folder, f"{MANIFEST} is larger than {_LARGEST_MANIFEST >> 20} MiB")
    try:
        document = _read_json(folder)
    except (ValueError, RecursionError) as error:
        raise _invalid(folder, f"{MANIFEST} is not JSON: {error}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BundleError(
            f"{folder} has a manifest of version {version!r}; this bcos-sdk reads version {SCHEMA_VERSION}",
            source=str(folder),
            hint="Export the model again, or install the version of bcos-sdk that wrote it.",
        )
    assert isinstance(document, dict)
    return document


def _manifest_of(folder: Path, document: dict[str, Any]) -> Manifest:
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        raise _invalid(folder, f"{MANIFEST} has faults: {first_faults(error)}") from error


def _read_json(folder: Path) -> Any:
    return json.loads((folder / MANIFEST).read_text("utf-8"))


def _check_file(folder: Path, name: str, record: FileRecord) -> None:
    _check_regular(folder, name)
    path = folder / name
    if path.stat().st_size != record.size or sha256_of(path) != record.sha256:
        raise _invalid(folder, f"{name} is not the file that was exported: its hash differs")


def _check_binding(folder: Path, graph: Path, digest: str) -> None:
    try:
        found = read_metadata(graph).get(MANIFEST_METADATA)
    except ValueError as error:
        raise _invalid(folder, f"{graph.name} is not an ONNX file: {error}") from error
    if found != digest:
        raise _invalid(folder, f"{MANIFEST} is not the one that was exported with {graph.name}: its digest differs")


def _check_regular(folder: Path, name: str) -> None:
    """Refuse links: a link may lead out of the bundle, and its file may change after it was verified."""
    path = folder
    for part in Path(name).parts:
        path = path / part
        try:
            status = path.lstat()
        except OSError:
            raise _invalid(folder, f"{name} is missing") from None
        if stat.S_ISLNK(status.st_mode):
            raise _invalid(folder, f"{name} is a symbolic link")
    # Package installers may hard-link the files of the built-in bundle to their cache.
    linked = status.st_nlink > 1 and not folder.resolve().is_relative_to(builtin_dir())
    if not stat.S_ISREG(status.st_mode) or linked:
        raise _invalid(folder, f"{name} is {'a hard link' if linked else 'not a regular file'}")


def _invalid(folder: Path, reason: str) -> BundleError:
    return BundleError(
        f"{folder} is not a usable bundle: {reason}",
        source=str(folder),
        hint="Export the model again: bcos-sdk export MODEL -o DIR",
    )
