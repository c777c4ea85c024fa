"""The bundle: a folder with ONNX graphs, their weights, and a manifest that vouches for them."""

from bcos_sdk.bundle._bundle import Bundle, InputShapes, holds_bundle, open_bundle
from bcos_sdk.bundle._golden import Golden
from bcos_sdk.bundle._store import BUILTIN_MODEL, builtin_bundle, find_bundle, latest_stored_bundle, stored_bundles
from bcos_sdk.bundle._write import BundleWriter
from bcos_sdk.bundle.manifest import SCHEMA_VERSION, FileRecord, Manifest, ModelRecord, Parity

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
    "builtin_bundle",
    "find_bundle",
    "holds_bundle",
    "latest_stored_bundle",
    "open_bundle",
    "stored_bundles",
]
