"""The words of the Open Inference Protocol v2 that a server and a client of this package share."""

from __future__ import annotations

import re

from bcos_sdk.errors import InputError

__all__ = [
    "BINARY_EXTENSION",
    "DATATYPES",
    "DIGEST_PARAMETER",
    "HEADER_LENGTH",
    "LARGEST_BATCH_PARAMETER",
    "LARGEST_BODY_PARAMETER",
    "PRECISION_PARAMETER",
    "check_model_name",
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

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_model_name(name: str, *, server: str, reserved: str) -> None:
    """Raise an error unless a model of this server can have the name. Those that explain end with `reserved`."""
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"{name!r} cannot be the name of a model on {server}",
            source="name",
            hint="Use letters, digits, '.', '_' and '-', and begin with a letter or a digit: --name.",
        )
    if name.endswith(reserved):
        raise InputError(
            f"{name!r} would be taken for the model that explains {name.removesuffix(reserved)!r}",
            source="name",
            hint=f"Choose a name that does not end with {reserved}: --name.",
        )
