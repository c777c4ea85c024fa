"""The words of the Open Inference Protocol v2 that a server and a client of this package share."""

from __future__ import annotations

__all__ = [
    "BINARY_EXTENSION",
    "DATATYPES",
    "DIGEST_PARAMETER",
    "HEADER_LENGTH",
    "LARGEST_BATCH_PARAMETER",
    "LARGEST_BODY_PARAMETER",
    "PRECISION_PARAMETER",
]

DATATYPES = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}
"""The protocol's name of each type of numpy that tensors have."""

BINARY_EXTENSION = "binary_tensor_data"
HEADER_LENGTH = "inference-header-content-length"
"""The header with the length of the JSON, after which the bytes of the tensors follow."""

LARGEST_BATCH_PARAMETER = "bcos_max_batch"
"""In the metadata of a model: the largest images × targets of a request."""
LARGEST_BODY_PARAMETER = "bcos_max_body"
"""In the metadata of a model: the largest body of a request in bytes."""
PRECISION_PARAMETER = "bcos_precision"
"""In the metadata of a model: the precision of its device, as certificates state it."""
DIGEST_PARAMETER = "bcos_manifest_sha256"
"""In an answer: the SHA-256 of the manifest of the model that computed it."""
