"""Opening a bundle: every file is where it should be, is a plain file, and has the hash it should have."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from bcos_sdk._files import sha256_of
from bcos_sdk._paths import builtin_dir
from bcos_sdk.bundle._golden import Golden
from bcos_sdk.bundle.manifest import SCHEMA_VERSION, FileRecord, Manifest
from bcos_sdk.contract import EXPLAIN_INPUTS, PREDICT_INPUTS, Layout
from bcos_sdk.errors import BundleError, first_faults

__all__ = ["MANIFEST", "Bundle", "InputShapes", "holds_bundle", "open_bundle"]

MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 16 << 20
InputShapes: TypeAlias = dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Bundle:
    """A bundle that was verified when it was opened."""

    path: Path
    manifest: Manifest

    @property
    def predict_graph(self) -> Path:
        return self.path / self.manifest.predict_graph

    @property
    def explain_graph(self) -> Path:
        return self.path / self.manifest.explain_graph

    @property
    def explain_rows_graph(self) -> Path | None:
        name = self.manifest.explain_rows_graph
        return None if name is None else self.path / name

    def explain_graph_for(self, layout: Layout) -> tuple[Path, Layout]:
        """The explain graph in this layout and its layout. Bundles without a graph in ROWS have GRID instead."""
        rows = self.explain_rows_graph
        return (self.explain_graph, Layout.GRID) if layout is Layout.GRID or rows is None else (rows, Layout.ROWS)

    @property
    def graphs(self) -> tuple[Path, ...]:
        """Every ONNX graph that it has."""
        return tuple(filter(None, (self.predict_graph, self.explain_graph, self.explain_rows_graph)))

    @property
    def engines(self) -> Path:
        """The folder of TensorRT engines, if there are any; each has a record of its own beside it."""
        return self.path / "engines"

    def golden(self) -> Golden:
        """What this bundle must reproduce wherever it runs."""
        return Golden.read(self.path / self.manifest.golden)

    def input_shapes(self, graph: Path) -> InputShapes:
        """The smallest, most usual and largest shape of each input of a graph: what engines are made for."""
        largest, sizes = self.manifest.max_batch, self.manifest.sizes
        batches = ((1, (1, 1)), (largest, (largest, 1)), (largest, (largest, largest)))
        ports = EXPLAIN_INPUTS if graph == self.explain_graph else PREDICT_INPUTS
        smallest, usual, most = ({port.name: port.shape(*batch, sizes) for port in ports} for batch in batches)
        return {name: (smallest[name], usual[name], most[name]) for name in smallest}


def holds_bundle(folder: Path) -> bool:
    """Whether the folder has a manifest; whether the bundle is sound, `open_bundle` checks."""
    try:
        return (folder / MANIFEST).is_file()
    except OSError:  # no permission to look into the folder, or a name that no folder can have
        return False


def open_bundle(path: Path | str) -> Bundle:
    """The bundle in that folder, or a `BundleError` that says what is wrong with it."""
    folder = Path(path)
    try:
        return _open(folder)
    except OSError as error:
        raise _invalid(folder, f"it cannot be read: {error.strerror}") from error


def _open(folder: Path) -> Bundle:
    if not folder.is_dir():
        raise _invalid(folder, "there is no such folder")
    manifest = _read_manifest(folder)
    needed = {manifest.predict_graph, manifest.explain_graph, manifest.weights, manifest.golden}
    needed |= set() if manifest.explain_rows_graph is None else {manifest.explain_rows_graph}
    if missing := needed - manifest.files.keys():
        raise _invalid(folder, f"the manifest vouches for no {', '.join(sorted(missing))}")
    for name, record in manifest.files.items():
        _check_file(folder, name, record)
    return Bundle(folder, manifest)


def _read_manifest(folder: Path) -> Manifest:
    _check_plain(folder, MANIFEST)
    path = folder / MANIFEST
    if path.stat().st_size > _LARGEST_MANIFEST:
        raise _invalid(folder, f"{MANIFEST} is too large to be one")
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _invalid(folder, f"{MANIFEST} is not JSON: {error}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BundleError(
            f"{folder} has a manifest of version {version!r}; this bcos-sdk reads version {SCHEMA_VERSION}",
            source=str(folder),
            hint="Export the model again, or install the version of bcos-sdk that wrote it.",
        )
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        raise _invalid(folder, f"{MANIFEST} is faulty: {first_faults(error)}") from error


def _check_file(folder: Path, name: str, record: FileRecord) -> None:
    _check_plain(folder, name)
    path = folder / name
    if path.stat().st_size != record.size or sha256_of(path) != record.sha256:
        raise _invalid(folder, f"{name} is not the file that was exported: its hash differs")


def _check_plain(folder: Path, name: str) -> None:
    """A link could lead out of the bundle, or change what was verified behind our back."""
    path = folder
    for part in Path(name).parts:
        path = path / part
        try:
            status = path.lstat()
        except OSError:
            raise _invalid(folder, f"{name} is missing") from None
        if stat.S_ISLNK(status.st_mode):
            raise _invalid(folder, f"{name} is a link")
    # Installers may link the files of a package to a cache of theirs.
    linked = status.st_nlink > 1 and not folder.resolve().is_relative_to(builtin_dir())
    if not stat.S_ISREG(status.st_mode) or linked:
        raise _invalid(folder, f"{name} is not a plain file of its own")


def _invalid(folder: Path, reason: str) -> BundleError:
    return BundleError(
        f"{folder} is not a usable bundle: {reason}",
        source=str(folder),
        hint="Export the model again: bcos-sdk export MODEL -o DIR",
    )
