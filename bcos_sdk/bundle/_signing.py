"""Sign a bundle: with a private key, with a key and its certificate, or with Sigstore."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bcos_sdk._extras import require
from bcos_sdk._files import atomic_write
from bcos_sdk.bundle._bundle import Bundle
from bcos_sdk.bundle._open import ENGINES, signed_hashes
from bcos_sdk.bundle._signature import SIGNATURE, SIGNATURE_MODULES, HashedFiles
from bcos_sdk.errors import BundleExistsError, InputError, OutputError, SigningError

__all__ = ["SignWithKey", "SignWithSigstore", "Signer", "is_encrypted"]


@dataclass(frozen=True)
class SignWithKey:
    """A private key in a PEM file: P-256, P-384 or P-521. With `certificate`, the signature contains certificates."""

    private_key: Path
    password: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    chain: tuple[Path, ...] = ()
    """Certificates between `certificate` and the root that the receivers trust."""


@dataclass(frozen=True)
class SignWithSigstore:
    """The identity of a CI job, or else of the person who logs in with the browser. It becomes public in a log."""

    trust_config: Path | None = None


def is_encrypted(private_key: Path) -> bool:
    """Whether a PEM file with a private key needs a password."""
    try:
        return b"ENCRYPTED" in private_key.read_bytes()
    except OSError as error:
        raise _unusable(private_key, error) from error


class Signer:
    """Signs bundles. The key is loaded here, so that a wrong password is noticed before a long export."""

    def __init__(self, method: SignWithKey | SignWithSigstore) -> None:
        require(*SIGNATURE_MODULES, purpose="Signing a bundle")
        self._method = method
        self._config: Any = import_module("model_signing.signing").Config()
        if isinstance(method, SignWithKey):
            self._load_key(method)
            return
        try:
            self._config.use_sigstore_signer(use_ambient_credentials=True, trust_config=method.trust_config)
        except Exception as error:  # of network, file or format
            raise SigningError(
                f"cannot sign with Sigstore: {error}",
                hint="Signing with Sigstore needs the network. Sign with a key instead, or try again.",
                retryable=True,
            ) from error

    def sign(self, bundle: Bundle, *, force: bool = False) -> Path:
        """Sign the contents that were opened, and write the signature into the bundle. Return its path.

        An existing signature is replaced only with `force`.
        """
        target = bundle.path / SIGNATURE
        if not force and (bundle.signature is not None or os.path.lexists(target)):
            raise BundleExistsError(
                f"{bundle.path} is signed already",
                source=str(bundle.path),
                hint="Pass --force (force=True) to replace the signature.",
            )
        hashes = HashedFiles(signed_hashes(bundle.manifest, bundle.sha256), ignored=(SIGNATURE, ENGINES))
        with TemporaryDirectory() as place:
            made = Path(place) / SIGNATURE
            try:
                self._config.set_hashing_config(hashes).sign(bundle.path, made)
            except Exception as error:  # Sigstore: login, network, certificate authority or log
                raise SigningError(
                    f"cannot sign {bundle.path}: {error}",
                    source=str(bundle.path),
                    hint="The bundle is complete but not signed. Sign it with `bcos-sdk sign`.",
                ) from error
            signature = made.read_bytes()
        try:
            with atomic_write(target, locked=True) as partial:
                partial.write_bytes(signature)
        except OSError as error:
            raise OutputError(
                f"cannot write {target}: {error.strerror}",
                source=str(target),
                hint="The bundle is complete but not signed. Check the permissions and the free space of its folder.",
            ) from error
        return target

    def _load_key(self, method: SignWithKey) -> None:
        password = None if method.password is None else method.password.encode("utf-8")
        try:
            if method.certificate is None:
                self._config.use_elliptic_key_signer(private_key=method.private_key, password=password)
                return
            if is_encrypted(method.private_key):
                raise InputError(
                    f"{method.private_key} is encrypted; model-signing takes no password for a key with certificate",
                    source=str(method.private_key),
                    hint="Decrypt the key on the machine that signs: openssl pkey -in KEY -out DECRYPTED",
                )
            self._config.use_certificate_signer(
                private_key=method.private_key,
                signing_certificate=method.certificate,
                certificate_chain=method.chain or (method.certificate,),  # it refuses an empty chain
            )
        except InputError:
            raise
        except Exception as error:  # libraries of cryptography raise many unrelated types for invalid files
            raise _unusable(method.private_key, error) from error


def _unusable(private_key: Path, error: Exception) -> InputError:
    return InputError(
        f"cannot sign with {private_key}: {error}",
        source=str(private_key),
        hint="Pass a PEM file with an elliptic-curve private key (P-256, P-384 or P-521), and its password.",
    )
