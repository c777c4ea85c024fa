"""The signature of a bundle, model.sig: who signed which files. OpenSSF model-signing defines and checks the format.

What is compared with the signed hashes are the hashes of the contents that were opened. The library does not read the
folder again, so a file that is replaced meanwhile has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from bcos_sdk._extras import require
from bcos_sdk.bundle._trust import Certificates, PublicKey, Sigstore, Verification
from bcos_sdk.errors import BcosError, InputError, SignatureError

__all__ = ["SIGNATURE", "SIGNATURE_MODULES", "HashedFiles", "SignatureKind", "signature_kind", "verify_signature"]

SIGNATURE = "model.sig"
SIGNATURE_MODULES = ("model_signing", "OpenSSL")
SignatureKind: TypeAlias = Literal["key", "certificate", "sigstore", "unknown"]

_KINDS: dict[str, SignatureKind] = {
    "publicKey": "key",
    "x509CertificateChain": "certificate",
    "certificate": "sigstore",
}
_MADE_WITH = {"key": "a key", "certificate": "a certificate", "sigstore": "Sigstore", "unknown": "an unknown method"}
_LONGEST_REASON = 300


class HashedFiles:
    """Takes the place of model-signing's hashing configuration: it returns known hashes and reads no file."""

    def __init__(self, hashes: Mapping[str, str], ignored: tuple[str, ...] = ()) -> None:
        self._hashes, self._ignored = hashes, ignored
        self.used = False

    def hash(self, model_path: object, **_options: object) -> Any:
        manifest = import_module("model_signing.manifest")
        digest = import_module("model_signing._hashing.hashing").Digest
        # These arguments are stored in the signature, so that the commands of model-signing can verify it, too.
        form = {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": [*self._ignored]}
        serialization = manifest.SerializationType.from_args(form)
        items = [serialization.new_item(name, digest("sha256", bytes.fromhex(h))) for name, h in self._hashes.items()]
        self.used = True
        return manifest.Manifest(Path(str(model_path)).name, items, serialization)

    def add_ignored_paths(self, **_options: object) -> None:
        """Do nothing: a signature cannot exclude a file from the comparison."""


def signature_kind(signature: bytes | memoryview) -> SignatureKind:
    """What a signature claims to be made with. Nothing is verified."""
    try:
        material = _document(signature)["verificationMaterial"]
        (kind,) = (kind for key, kind in _KINDS.items() if key in material)
    except (ValueError, KeyError, TypeError, RecursionError):
        return "unknown"
    return kind


def verify_signature(
    folder: Path, signature: memoryview | None, hashes: Mapping[str, str], verify: Verification
) -> None:
    """Raise a `SignatureError` unless `verify` accepts the signer, who signed exactly the files with these hashes."""
    require(*SIGNATURE_MODULES, purpose="Checking a signature")
    if signature is None:
        raise _wrong(folder, f"it is not signed: it has no {SIGNATURE}")
    try:
        _verify(folder, signature, hashes, verify)
    except BcosError:
        raise
    except Exception as error:  # libraries of cryptography raise many unrelated types for invalid input
        raise _wrong(folder, _reason(error)) from error


def _verify(folder: Path, signature: memoryview, hashes: Mapping[str, str], verify: Verification) -> None:
    document = _document(signature)
    material = import_module("sigstore_models.bundle.v1").Bundle.from_dict(document).verification_material
    made_with, expected = signature_kind(signature), _expected_kind(verify)
    if made_with != expected:
        raise _wrong(folder, f"it was signed with {_MADE_WITH[made_with]}, expected {_MADE_WITH[expected]}")
    if made_with == "key" and not material.public_key.hint:  # the library would print a warning to stdout
        raise _wrong(folder, "its signature does not name a key")
    files = HashedFiles(hashes)
    verifier = _verifier(verify).set_hashing_config(files)
    with TemporaryDirectory() as place:
        # The library takes a path. It gets what was read here, without keys that occur twice.
        copy = Path(place) / SIGNATURE
        copy.write_text(json.dumps(document), "utf-8")
        try:
            verifier.verify(folder, copy)
        except ValueError as error:
            if files.used:  # the signature is right, and the hashes were compared
                raise _wrong(folder, "it belongs to other files, or the files were changed") from error
            raise
    if not files.used:
        raise _wrong(folder, "this version of model-signing did not compare the files")
    if isinstance(verify, Certificates) and verify.identity is not None:
        _check_identity(folder, material.x509_certificate_chain.certificates[0].raw_bytes, verify.identity)


def _document(signature: bytes | memoryview) -> dict[str, Any]:
    document = json.loads(bytes(signature).decode("utf-8"))
    if not isinstance(document, dict):
        raise ValueError(f"{SIGNATURE} is not a JSON object")
    return document


def _expected_kind(verify: Verification) -> SignatureKind:
    return "key" if isinstance(verify, PublicKey) else "certificate" if isinstance(verify, Certificates) else "sigstore"


def _verifier(verify: Verification) -> Any:
    """The configuration of the library. An error here is a fault of the caller's own files, not of the bundle."""
    config = import_module("model_signing.verifying").Config()
    try:
        if isinstance(verify, PublicKey):
            return config.use_elliptic_key_verifier(public_key=verify.path)
        if isinstance(verify, Certificates):
            return config.use_certificate_verifier(certificate_chain=verify.chain)
        return config.use_sigstore_verifier(
            identity=verify.identity, oidc_issuer=verify.issuer, trust_config=verify.trust_config
        )
    except Exception as error:
        if isinstance(verify, Sigstore) and verify.trust_config is None:
            raise SignatureError(
                f"the roots of Sigstore cannot be fetched: {_reason(error)}",
                hint="Connect to the network, or pass a file with the roots as trust_config.",
                retryable=True,
            ) from error
        raise InputError(
            f"cannot verify with {verify}: {_reason(error)}",
            source="verify",
            hint="Pass a PEM file with an elliptic-curve public key or with certificates, or a trust configuration.",
        ) from error


def _check_identity(folder: Path, certificate: bytes, identity: str) -> None:
    """Raise unless the verified certificate of the signer has this name. The library accepts every certificate."""
    from cryptography import x509

    names = set()
    parsed = x509.load_der_x509_certificate(certificate)
    for attribute in parsed.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME):
        names.add(str(attribute.value))
    for extension in parsed.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            for kind in (x509.RFC822Name, x509.DNSName, x509.UniformResourceIdentifier):
                names.update(extension.value.get_values_for_type(kind))
    if identity not in names:
        found = ", ".join(sorted(names)) or "a certificate without a name"
        raise _wrong(folder, f"it was signed by {found:.{_LONGEST_REASON}}, expected {identity}")


def _reason(error: Exception) -> str:
    """The message of an error of the library on one short line. The error of a wrong signature has no message."""
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def _wrong(folder: Path, reason: str) -> SignatureError:
    return SignatureError(
        f"the signature of {folder} was not accepted: {reason}",
        source=str(folder),
        hint="Do not use the bundle. Ask its maker for a signed copy, and check the key or identity that you passed.",
    )
