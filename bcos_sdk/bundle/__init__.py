"""The bundle: a folder with ONNX graphs, weights, golden record, and a manifest with the hash of every file."""

from bcos_sdk.bundle._bundle import Bundle, InputShapes
from bcos_sdk.bundle._external_data import move_external_data
from bcos_sdk.bundle._golden import Golden
from bcos_sdk.bundle._graph_gate import GateError, check_graph
from bcos_sdk.bundle._manifest import SCHEMA_VERSION, FileRecord, Manifest, ModelRecord, Parity, binding_digest
from bcos_sdk.bundle._open import has_manifest, open_bundle
from bcos_sdk.bundle._store import BUILTIN_MODEL, builtin_bundle, find_bundle, latest_stored_bundle, stored_bundles
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
    "binding_digest",
    "builtin_bundle",
    "check_graph",
    "find_bundle",
    "has_manifest",
    "latest_stored_bundle",
    "move_external_data",
    "open_bundle",
    "stored_bundles",
]
