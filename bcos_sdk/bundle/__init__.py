"""The bundle: a folder with ONNX graphs, weights, golden record, and a manifest with the hash of every file."""

from bcos_sdk.bundle._bundle import Bundle, InputShapes, has_manifest, open_bundle
from bcos_sdk.bundle._golden import Golden
from bcos_sdk.bundle._manifest import SCHEMA_VERSION, FileRecord, Manifest, ModelRecord, Parity
from bcos_sdk.bundle._store import (
    BUILTIN_MODEL,
    StoredBundle,
    builtin_bundle,
    check_name,
    find_bundle,
    latest_stored_bundle,
    list_store,
    read_manifest,
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
    "Golden",
    "InputShapes",
    "Manifest",
    "ModelRecord",
    "Parity",
    "StoredBundle",
    "builtin_bundle",
    "check_name",
    "find_bundle",
    "has_manifest",
    "latest_stored_bundle",
    "list_store",
    "open_bundle",
    "read_manifest",
    "remove_stored",
    "stored_bundles",
]
