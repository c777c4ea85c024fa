"""Whose bundles a caller accepts: `PublicKey`, `Certificates` or `Sigstore`, and the digest of one bundle.

These are plain values. `_signature.py` checks a signature against them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bcos_sdk.errors import HashMismatchError, InputError

__all__ = ["Certificates", "PublicKey", "Sigstore", "Verification", "check_digest", "parse_digest"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PublicKey:
    """Accept a bundle that was signed with the private key of this public key.

    `path` is a PEM file with an elliptic-curve key: P-256, P-384 or P-521.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _file("path", self.path))

    def __str__(self) -> str:
        return f"the public key {self.path}"


@dataclass(frozen=True)
class Certificates:
    """Accept a bundle that was signed with a certificate which leads to one of the root certificates in `chain`.

    `chain` is one or several PEM files. Without `identity` every signer with such a certificate is accepted. With it,
    the certificate of the signer must have this e-mail address, host name, URI or common name.
    """

    chain: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    identity: str | None = None

    def __post_init__(self) -> None:
        several = isinstance(self.chain, Sequence) and not isinstance(self.chain, str)
        given: Sequence[Any] = self.chain if several else [self.chain]  # type: ignore[assignment]
        files = tuple(_file("chain", path) for path in given)
        if not files:  # the library would then trust every certificate of the public web
            raise InputError("chain is empty", source="chain", hint="Pass the PEM file of the root that you trust.")
        object.__setattr__(self, "chain", files)
        if self.identity is not None:
            _check_text("identity", self.identity)

    def __str__(self) -> str:
        files = ", ".join(map(str, self.chain))  # type: ignore[arg-type] # a tuple after __post_init__
        return f"the certificates {files}" + (f" for {self.identity}" if self.identity else "")


@dataclass(frozen=True)
class Sigstore:
    """Accept a bundle that this identity signed with Sigstore: an e-mail address or the URI of a workflow.

    `issuer` is the URL of the service that confirmed the identity, for example https://accounts.google.com. The roots
    of the public Sigstore are fetched over the network, unless `trust_config` names a file with the roots to use.
    """

    identity: str
    issuer: str
    trust_config: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        _check_text("identity", self.identity)
        _check_text("issuer", self.issuer)
        if self.trust_config is not None:
            object.__setattr__(self, "trust_config", _file("trust_config", self.trust_config))

    def __str__(self) -> str:
        return f"Sigstore for {self.identity}, confirmed by {self.issuer}"


Verification: TypeAlias = PublicKey | Certificates | Sigstore


def parse_digest(sha256: Any) -> str:
    """Return the SHA-256 in lower case if it is one, else raise an `InputError`."""
    if isinstance(sha256, str) and _SHA256.fullmatch(sha256.lower()):
        return sha256.lower()
    raise InputError(
        f"sha256 is {sha256!r:.80}, expected 64 hexadecimal digits",
        source="sha256",
        hint="Pass the SHA-256 of the bundle's manifest.json, which `bcos-sdk inspect` shows.",
    )


def check_digest(folder: Path, manifest: bytes | memoryview, expected: str, hint: str) -> None:
    """Raise a `HashMismatchError` unless the manifest has this SHA-256. The manifest has the hashes of all files."""
    found = hashlib.sha256(manifest).hexdigest()
    if found != expected:
        raise HashMismatchError(
            f"{folder} is not the expected bundle: the SHA-256 of its manifest is {found}, expected {expected}",
            source=str(folder),
            hint=hint,
        )


def _file(name: str, path: Any) -> Path:
    """An absolute path, so that a client that is pickled finds the file from another folder."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"{name} is {path!r:.80}, expected a path", source=name, hint="Pass the path of a file.")
    return Path(path).absolute()


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} is {value!r:.80}, expected text that is not empty", source=name, hint="Pass text.")
