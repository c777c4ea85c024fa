"""The bundle: a folder with ONNX graphs, weights, golden record, and a manifest with the hash of every file."""

from bcos_sdk.bundle._bundle import Bundle, InputShapes
from bcos_sdk.bundle._contents import release_pages
from bcos_sdk.bundle._external_data import external_tensors, move_external_data
from bcos_sdk.bundle._golden import Golden
from bcos_sdk.bundle._graph_gate import GateError, check_graph
from bcos_sdk.bundle._manifest import SCHEMA_VERSION, FileRecord, Manifest, ModelRecord, Parity, binding_digest
from bcos_sdk.bundle._open import has_manifest, open_bundle, read_manifest
from bcos_sdk.bundle._store import (
    BUILTIN_MODEL,
    StoredBundle,
    builtin_bundle,
    check_name,
    find_bundle,
    latest_stored_bundle,
    list_store,
    remove_stored,
    stored_bundles,
)
from bcos_sdk.bundle._write import BundleWriter

__all__ = [
    "BUILTIN_MODEL",
    "SCHEMA_VERSION",
    "Bundle",
    "BundleWriter",
    "FileRecord",
    "GateError",
    "Golden",
    "InputShapes",
    "Manifest",
    "ModelRecord",
    "Parity",
    "StoredBundle",
    "binding_digest",
    "builtin_bundle",
    "check_graph",
    "check_name",
    "external_tensors",
    "find_bundle",
    "has_manifest",
    "latest_stored_bundle",
    "list_store",
    "move_external_data",
    "open_bundle",
    "read_manifest",
    "release_pages",
    "remove_stored",
    "stored_bundles",
]
