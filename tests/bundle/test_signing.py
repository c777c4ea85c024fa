"""Signing a bundle and checking who signed it, with model-signing's own commands as the oracle."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from model_signing import hashing, signing, verifying
from sigstore.verify.policy import Identity
from support.bundles import copy_of, edit_manifest, small_bundle
from support.signers import (
    Authority,
    disguise_as_sigstore,
    sign_with_certificate,
    sign_with_key,
    write_key,
    write_trust_config,
)

from bcos_sdk import Certificates, PublicKey, Sigstore, _extras
from bcos_sdk.bundle import SIGNATURE, Signer, SignWithKey, SignWithSigstore, open_bundle, signature_kind
from bcos_sdk.errors import (
    BundleError,
    BundleExistsError,
    HashMismatchError,
    InputError,
    MissingExtraError,
    OutputError,
    SignatureError,
    SigningError,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of(small_bundle(), tmp_path / "bundle")


def test_model_signing_accepts_our_signatures(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    signature = sign_with_key(folder, private)
    (folder / "engines").mkdir()
    (folder / "engines" / "explain.plan").touch()  # engines are not signed
    verifying.Config().use_elliptic_key_verifier(public_key=public).verify(folder, signature)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"Hash mismatch for 'manifest\.json'"):
        verifying.Config().use_elliptic_key_verifier(public_key=public).verify(folder, signature)


def test_we_accept_signatures_of_model_signing(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    made = signing.Config().use_elliptic_key_signer(private_key=private)
    made.set_hashing_config(hashing.Config()).sign(folder, folder / SIGNATURE)
    open_bundle(folder, verify=PublicKey(public))
    (folder / "engines").mkdir()
    open_bundle(folder, verify=PublicKey(public))


@pytest.mark.parametrize("curve", ["SECP256R1", "SECP384R1", "SECP521R1"])
def test_keys_of_all_three_curves(curve: str, folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path, curve=curve)
    sign_with_key(folder, private)
    opened = open_bundle(folder, verify=PublicKey(public))
    assert opened.signature is not None
    assert signature_kind(opened.signature) == "key"


def test_a_key_with_a_password(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path, password="secret")
    for wrong in (None, "wrong"):
        with pytest.raises(InputError, match=r"cannot sign with .*key\.pem"):
            Signer(SignWithKey(private, wrong))
    Signer(method := SignWithKey(private, "secret")).sign(open_bundle(folder))
    assert "secret" not in repr(method)
    open_bundle(folder, verify=PublicKey(public))
    with pytest.raises(InputError, match="takes no password"):
        Signer(SignWithKey(private, "secret", Authority(tmp_path).root))


def test_certificates_with_and_without_an_identity(folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    sign_with_certificate(folder, *authority.issue("alice", email="alice@example.com"))
    for identity in (None, "alice", "alice@example.com"):
        opened = open_bundle(folder, verify=Certificates(authority.root, identity))
        assert opened.signature is not None
        assert signature_kind(opened.signature) == "certificate"
    with pytest.raises(SignatureError, match="expected Alice"):
        open_bundle(folder, verify=Certificates(authority.root, "Alice"))
    between = authority.issue("between", is_authority=True)
    carol = authority.issue("carol", issuer=between)
    sign_with_certificate(folder, *carol, between[1])
    open_bundle(folder, verify=Certificates([authority.root], "carol"))
    with pytest.raises(SignatureError):
        open_bundle(folder, verify=Certificates(Authority(tmp_path, "other").root))


def test_a_certificate_that_expired_after_the_signature_is_accepted(folder: Path, tmp_path: Path) -> None:
    """There is no trusted time of signing: what docs/signing.md says about expired certificates."""
    authority = Authority(tmp_path)
    sign_with_certificate(folder, *authority.issue("alice", began=-timedelta(days=800)))
    open_bundle(folder, verify=Certificates(authority.root, "alice"))


def test_a_certificate_of_another_key_cannot_sign(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(InputError, match="does not match"):
        Signer(SignWithKey(authority.issue("alice")[0], None, authority.issue("bob")[1]))


def test_the_digest_is_that_of_the_manifest(folder: Path) -> None:
    sha256 = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert open_bundle(folder, sha256=sha256.upper()).sha256 == sha256 == small_bundle().manifest.digest
    with pytest.raises(HashMismatchError, match=f"is {sha256}, expected {'0' * 64}"):
        open_bundle(folder, sha256="0" * 64)
    for wrong in ("", "abc", sha256[:-1], f"{sha256}\n", 5):
        with pytest.raises(InputError, match="expected 64 hexadecimal digits"):
            open_bundle(folder, sha256=wrong)  # type: ignore[arg-type]


def test_a_signature_is_replaced_only_on_demand(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    with pytest.raises(BundleExistsError, match="is signed already"):
        Signer(SignWithKey(write_key(tmp_path, "other")[0])).sign(open_bundle(folder))
    open_bundle(folder, verify=PublicKey(public))


def test_a_signature_that_cannot_be_written_leaves_the_old_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    before = {path.name for path in folder.iterdir()}

    def full(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OutputError, match=r"model\.sig: No space left"):
            sign_with_key(folder, write_key(tmp_path, "other")[0])
    assert {path.name for path in folder.iterdir()} == before
    open_bundle(folder, verify=PublicKey(public))


def test_a_killed_signer_leaves_a_usable_bundle(folder: Path, tmp_path: Path) -> None:
    left = folder / f".{SIGNATURE}.{'0' * 32}.partial"
    left.write_text("half")
    open_bundle(folder)
    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    open_bundle(folder, verify=PublicKey(public))
    assert not left.exists()


def test_a_manifest_cannot_list_the_signature(folder: Path) -> None:
    (folder / SIGNATURE).write_text("{}")

    def change(document: dict[str, Any]) -> None:
        document["files"][SIGNATURE] = dict(document["files"]["golden.npz"])

    edit_manifest(folder, change)
    with pytest.raises(BundleError, match=r"the manifest lists model\.sig"):
        open_bundle(folder)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Certificates([]), "chain is empty"),
        (lambda: Certificates(5), "chain is 5, expected a path"),  # type: ignore[arg-type]
        (lambda: Certificates("ca.pem", ""), "identity is ''"),
        (lambda: PublicKey(None), "path is None, expected a path"),  # type: ignore[arg-type]
        (lambda: Sigstore("", "https://example.com"), "identity is ''"),
        (lambda: Sigstore("me@example.com", ""), "issuer is ''"),
    ],
)
def test_wrong_arguments(make: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        make()


def test_files_of_the_caller_that_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    for path in (tmp_path / "missing.pem", private, folder / "manifest.json"):
        with pytest.raises(InputError, match="cannot verify with the public key"):
            open_bundle(folder, verify=PublicKey(path))
    sign_with_certificate(folder, *authority.issue("alice"))
    with pytest.raises(InputError, match="cannot verify with the certificates"):
        open_bundle(folder, verify=Certificates(public))
    with pytest.raises(SignatureError, match="signed with a certificate, expected a key"):
        open_bundle(folder, verify=PublicKey(public))
    with pytest.raises(SignatureError, match="signed with a certificate, expected Sigstore"):
        open_bundle(folder, verify=Sigstore("alice", "https://example.com"))
    with pytest.raises(InputError, match="cannot sign with"):
        Signer(SignWithKey(public))


def test_sigstore_without_its_roots(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trust configuration that is no such file, and a network that does not answer."""
    authority = Authority(tmp_path)
    sign_with_certificate(folder, *authority.issue("alice"))
    disguise_as_sigstore(folder, logged=False)
    with pytest.raises(InputError, match="cannot verify with Sigstore for alice"):
        open_bundle(folder, verify=Sigstore("alice", "https://example.com", authority.root))

    def offline(*_arguments: Any, **_options: Any) -> None:
        raise OSError("the network is down")

    monkeypatch.setattr("sigstore.models.ClientTrustConfig.production", offline)
    with pytest.raises(SignatureError, match="the network is down") as caught:
        open_bundle(folder, verify=Sigstore("alice", "https://example.com"))
    assert caught.value.retryable
    with pytest.raises(SigningError, match="the network is down"):
        Signer(SignWithSigstore())
    with pytest.raises(SigningError, match="cannot sign with Sigstore"):
        Signer(SignWithSigstore(write_trust_config(tmp_path / "trust.json", authority.root)))


def test_a_statement_that_sigstore_accepts_must_be_of_these_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cryptography of Sigstore is replaced, because its logs are on the network. What it gets is the real input."""
    authority = Authority(tmp_path)
    sign_with_certificate(folder, *authority.issue("alice"))
    disguise_as_sigstore(folder, logged=True)
    policies: list[Any] = []

    def accept(_verifier: Any, bundle: Any, policy: Any) -> tuple[str, bytes]:
        policies.append(policy)
        envelope = json.loads(bundle.to_json())["dsseEnvelope"]
        return envelope["payloadType"], base64.b64decode(envelope["payload"])

    monkeypatch.setattr("sigstore.verify.Verifier.verify_dsse", accept)
    verify = Sigstore("alice", "https://example.com", write_trust_config(tmp_path / "trust.json", authority.root))
    open_bundle(folder, verify=verify)
    ours = vars(Identity(identity="alice", issuer="https://example.com"))
    assert vars(policies[0])["_identity"] == ours["_identity"]
    assert vars(vars(policies[0])["_issuer"]) == vars(ours["_issuer"])
    edit_manifest(folder, lambda document: document["labels"].reverse())
    with pytest.raises(SignatureError, match="belongs to other files"):
        open_bundle(folder, verify=verify)


def test_without_the_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_extras, "is_installed", lambda module: module != "model_signing")
    verify = PublicKey(tmp_path / "key.pub")
    assert pickle.loads(pickle.dumps(verify)) == verify
    with pytest.raises(MissingExtraError, match=r"pip install 'bcos-sdk\[sign\]'"):
        open_bundle(folder, verify=verify)
    with pytest.raises(MissingExtraError, match=r"pip install 'bcos-sdk\[sign\]'"):
        Signer(SignWithKey(tmp_path / "key.pem"))
