"""Keys and certificates for tests of signatures, made when a test needs them. Nothing here uses the network."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bcos_sdk.bundle import SIGNATURE, Signer, SignWithKey, open_bundle

__all__ = [
    "Authority",
    "as_material",
    "disguise_as_sigstore",
    "edit_signature",
    "sign_with_certificate",
    "sign_with_key",
    "write_key",
    "write_trust_config",
]

_YEAR = timedelta(days=365)


def write_key(
    folder: Path, name: str = "key", password: str | None = None, curve: str = "SECP256R1"
) -> tuple[Path, Path]:
    """Make an elliptic-curve key; return the files of the private and of the public key."""
    key = ec.generate_private_key(getattr(ec, curve)())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(_private_pem(key, password))
    public.write_bytes(_public_pem(key))
    return private, public


def sign_with_key(bundle: Path, private: Path) -> Path:
    """Sign the bundle; return the file of the signature."""
    return Signer(SignWithKey(private)).sign(open_bundle(bundle), force=True)


def sign_with_certificate(bundle: Path, private: Path, certificate: Path, *chain: Path) -> Path:
    return Signer(SignWithKey(private, None, certificate, chain)).sign(open_bundle(bundle), force=True)


def edit_signature(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the JSON document of a signature."""
    path = bundle / SIGNATURE
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


class Authority:
    """A certificate authority: `root` is its certificate, `issue` makes certificates that lead to it."""

    def __init__(self, folder: Path, name: str = "root") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _certificate(name, self._key.public_key(), None, self._key, is_authority=True)
        self.root = self._write(f"{name}.crt", self._certificate)

    def issue(
        self,
        name: str,
        *,
        email: str | None = None,
        may_sign: bool = True,
        is_authority: bool = False,
        began: timedelta = -timedelta(days=1),
        issuer: tuple[Path, Path] | None = None,
    ) -> tuple[Path, Path]:
        """Return the files of a private key and of its certificate, signed by the root or by another pair of files."""
        key = ec.generate_private_key(ec.SECP256R1())
        above, above_key = self._certificate, self._key
        if issuer is not None:
            loaded = serialization.load_pem_private_key(issuer[0].read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            above, above_key = x509.load_pem_x509_certificate(issuer[1].read_bytes()), loaded
        certificate = _certificate(
            name,
            key.public_key(),
            above,
            above_key,
            email=email,
            may_sign=may_sign,
            is_authority=is_authority,
            began=began,
        )
        private = self.folder / f"{name}.pem"
        private.write_bytes(_private_pem(key, None))
        return private, self._write(f"{name}.crt", certificate)

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self.folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path


def as_material(certificate: Path) -> dict[str, str]:
    """A certificate in the form that signatures have."""
    parsed = x509.load_pem_x509_certificate(certificate.read_bytes())
    return {"rawBytes": base64.b64encode(parsed.public_bytes(serialization.Encoding.DER)).decode()}


def disguise_as_sigstore(bundle: Path, *, logged: bool) -> None:
    """Give a signature that was made with a certificate the form of one of Sigstore, with or without an entry of a log.

    The entry has the right form, and nothing in it is true.
    """
    number = base64.b64encode(bytes(32)).decode()
    entry = {
        "logIndex": "1",
        "logId": {"keyId": number},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": "1700000000",
        "inclusionPromise": {"signedEntryTimestamp": "AAAA"},
        "inclusionProof": {
            "logIndex": "1",
            "rootHash": number,
            "treeSize": "2",
            "hashes": [number],
            "checkpoint": {"envelope": "forged"},
        },
        "canonicalizedBody": base64.b64encode(b"{}").decode(),
    }

    def change(document: dict[str, Any]) -> None:
        material = document["verificationMaterial"]
        material["certificate"] = material.pop("x509CertificateChain")["certificates"][0]
        material["tlogEntries"] = [entry] if logged else []

    edit_signature(bundle, change)


def write_trust_config(path: Path, root: Path) -> Path:
    """The roots of a Sigstore of our own: one certificate authority, whose key is also that of both logs."""
    key = x509.load_pem_x509_certificate(root.read_bytes()).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    since = {"start": "2020-01-01T00:00:00Z"}
    log = {
        "baseUrl": "https://log.invalid",
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": base64.b64encode(der).decode(),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": since,
        },
        "logId": {"keyId": base64.b64encode(bytes(32)).decode()},
    }
    authority = {
        "subject": {"organization": "tests", "commonName": "root"},
        "uri": "https://authority.invalid",
        "certChain": {"certificates": [as_material(root)]},
        "validFor": since,
    }
    media = "application/vnd.dev.sigstore."
    trusted = {
        "mediaType": f"{media}trustedroot+json;version=0.1",
        "tlogs": [log],
        "ctlogs": [log],
        "certificateAuthorities": [authority],
        "timestampAuthorities": [],
    }
    services = {
        "mediaType": f"{media}signingconfig.v0.2+json",
        **dict.fromkeys(("caUrls", "oidcUrls", "rekorTlogUrls", "tsaUrls"), ()),
        "rekorTlogConfig": {"selector": "ANY"},
        "tsaConfig": {"selector": "ANY"},
    }
    config = {
        "mediaType": f"{media}clienttrustconfig.v0.1+json",
        "trustedRoot": trusted,
        "signingConfig": services,
    }
    path.write_text(json.dumps(config), "utf-8")
    return path


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    email: str | None = None,
    may_sign: bool = True,
    is_authority: bool = False,
    began: timedelta = -timedelta(days=1),
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    began_at = datetime.now(timezone.utc) + (began if issuer is not None else -10 * _YEAR)
    usage = dict.fromkeys(
        [
            "content_commitment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ],
        False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(began_at)
        .not_valid_after(began_at + (_YEAR if issuer is not None else 20 * _YEAR))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=may_sign,
                key_encipherment=not may_sign,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                **usage,
            ),
            critical=True,
        )
    )
    if email is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.RFC822Name(email)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _private_pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> bytes:
    encryption = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode("utf-8"))
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)
