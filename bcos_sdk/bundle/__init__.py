"""The bundle: a folder with ONNX graphs, weights, golden record, and a manifest with the hash of every file."""

from bcos_sdk.bundle._builtin import BUILTIN_MODEL, BUILTIN_SHA256, DEFAULT_MODEL, PETS_MODEL, builtin_bundle
from bcos_sdk.bundle._bundle import Bundle, InputShapes
from bcos_sdk.bundle._contents import release_pages
from bcos_sdk.bundle._external_data import external_tensors, move_external_data
from bcos_sdk.bundle._golden import Golden, GoldenLayer
from bcos_sdk.bundle._graph_edit import EditableGraph, Node, constant, node
from bcos_sdk.bundle._graph_gate import GateError, check_graph
from bcos_sdk.bundle._manifest import (
    MOST_CLASSES,
    MOST_LAYERS,
    MOST_SIZES,
    SCHEMA_VERSION,
    FileRecord,
    LayerParity,
    LayerRecord,
    LayersRecord,
    Manifest,
    ModelRecord,
    Parity,
    SizeRecord,
    binding_digest,
)
from bcos_sdk.bundle._open import has_manifest, open_bundle, parse_manifest, read_manifest
from bcos_sdk.bundle._signature import SIGNATURE, SignatureKind, signature_kind
from bcos_sdk.bundle._signing import Signer, SignWithKey, SignWithSigstore, is_encrypted
from bcos_sdk.bundle._store import (
    StoredBundle,
    check_name,
    find_bundle,
    find_folder,
    is_name,
    latest_stored_bundle,
    list_store,
    remove_stored,
    stored_bundles,
)
from bcos_sdk.bundle._trust import Certificates, PublicKey, Sigstore, Verification, parse_digest
from bcos_sdk.bundle._write import BundleWriter

__all__ = [
    "BUILTIN_MODEL",
    "BUILTIN_SHA256",
    "DEFAULT_MODEL",
    "MOST_CLASSES",
    "MOST_LAYERS",
    "MOST_SIZES",
    "PETS_MODEL",
    "SCHEMA_VERSION",
    "SIGNATURE",
    "Bundle",
    "BundleWriter",
    "Certificates",
    "EditableGraph",
    "FileRecord",
    "GateError",
    "Golden",
    "GoldenLayer",
    "InputShapes",
    "LayerParity",
    "LayerRecord",
    "LayersRecord",
    "Manifest",
    "ModelRecord",
    "Node",
    "Parity",
    "PublicKey",
    "SignWithKey",
    "SignWithSigstore",
    "SignatureKind",
    "Signer",
    "Sigstore",
    "SizeRecord",
    "StoredBundle",
    "Verification",
    "binding_digest",
    "builtin_bundle",
    "check_graph",
    "check_name",
    "constant",
    "external_tensors",
    "find_bundle",
    "find_folder",
    "has_manifest",
    "is_encrypted",
    "is_name",
    "latest_stored_bundle",
    "list_store",
    "move_external_data",
    "node",
    "open_bundle",
    "parse_digest",
    "parse_manifest",
    "read_manifest",
    "release_pages",
    "remove_stored",
    "signature_kind",
    "stored_bundles",
]
