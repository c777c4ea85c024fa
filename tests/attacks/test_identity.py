"""Bundles of somebody else, with hashes that fit: each is refused if the caller said whose bundle it must be."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.attacks import HELD, attack, no_attack
from support.bundles import copy_of, edit_manifest, random_pixels, sign_again, small_bundle
from support.signers import (
    Authority,
    as_material,
    disguise_as_sigstore,
    edit_signature,
    sign_with_certificate,
    sign_with_key,
    write_key,
    write_trust_config,
)
from support.watching import can_watch, watch

from bcos_sdk import Certificates, Client, PublicKey, Sigstore
from bcos_sdk.bundle import BUILTIN_MODEL, SIGNATURE, builtin_bundle, open_bundle
from bcos_sdk.errors import BundleError, HashMismatchError, SignatureError

OPENED = "the bundle opened: nothing told who made it"
UNLISTED = "refused as an unlisted file, because there were no signatures"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of(small_bundle(), tmp_path / "bundle")


def other_labels(folder: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["labels"][:2] = reversed(document["labels"][:2])

    edit_manifest(folder, change)


def other_weights(folder: Path) -> None:
    weights = np.frombuffer((folder / "weights.bin").read_bytes(), np.float32).copy()
    weights[:50] *= 2
    (folder / "weights.bin").write_bytes(weights.tobytes())
    sign_again(folder)


def other_spelling(folder: Path) -> None:
    """The same manifest, written differently. The file is another one."""
    sign_again(folder)


FORGERIES: dict[str, Callable[[Path], object]] = {
    "other labels": other_labels,
    "other weights": other_weights,
    "a manifest written anew": other_spelling,
}


@attack("identity", "a changed bundle whose hashes are all made to fit again", before=OPENED)
@pytest.mark.parametrize("case", FORGERIES)
def test_a_changed_bundle_is_refused(case: str, folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    authority = Authority(tmp_path)
    sha256 = open_bundle(folder).sha256
    FORGERIES[case](folder)
    open_bundle(folder)
    with pytest.raises(HashMismatchError, match="is not the expected bundle"):
        Client(folder, sha256=sha256)
    original = copy_of(small_bundle(), tmp_path / "original")
    shutil.copy(sign_with_key(original, private), folder)
    with pytest.raises(SignatureError, match="belongs to other files"):
        Client(folder, verify=PublicKey(public))
    shutil.copy(sign_with_certificate(original, *authority.issue("alice")), folder)
    with pytest.raises(SignatureError, match="belongs to other files"):
        Client(folder, verify=Certificates(authority.root))


@attack("identity", "the files behind a signed manifest are swapped", before=HELD)
def test_a_swapped_file_is_refused(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    (folder / "golden.npz").write_bytes(b"swapped")
    with pytest.raises(BundleError, match=r"golden\.npz is not the file that was exported"):
        Client(folder, verify=PublicKey(public))


@attack("identity", "no signature, or one that somebody else made", before=OPENED)
@pytest.mark.parametrize("case", ["none", "another key", "another key, claimed to be the right one"])
def test_the_key_must_be_the_right_one(case: str, folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    if case != "none":
        right = json.loads(sign_with_key(folder, private).read_text())["verificationMaterial"]
        sign_with_key(folder, write_key(tmp_path, "mallory")[0])
        if "claimed" in case:
            edit_signature(folder, lambda document: document.update(verificationMaterial=right))
    with pytest.raises(SignatureError, match=r"not signed|Key mismatch|InvalidSignature"):
        Client(folder, verify=PublicKey(public))


@attack("identity", "a certificate that must not sign for the expected maker", before=OPENED)
@pytest.mark.parametrize(
    "case", ["another root", "issued by a signer", "not for signatures", "another name", "not yet an authority"]
)
@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning")
def test_the_certificate_must_be_the_right_one(case: str, folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    verify, reason = Certificates(authority.root, identity="alice@example.com"), "certificate"
    if case == "another root":
        other = Authority(tmp_path, "other")
        sign_with_certificate(folder, *other.issue("alice", email="alice@example.com"), other.root)
    elif case == "issued by a signer":
        mallory = authority.issue("mallory")
        forged = authority.issue("alice", email="alice@example.com", issuer=mallory)
        sign_with_certificate(folder, *forged, mallory[1])
        reason = "invalid CA certificate"
    elif case == "not for signatures":
        sign_with_certificate(folder, *authority.issue("alice", email="alice@example.com", may_sign=False))
        reason = "cannot be used for signing"
    elif case == "another name":
        sign_with_certificate(folder, *authority.issue("mallory", email="mallory@example.com"))
        reason = "signed by mallory, mallory@example.com, expected alice@example.com"
    else:
        later = authority.issue("later", is_authority=True, began=timedelta(days=30))
        sign_with_certificate(folder, *authority.issue("alice", email="alice@example.com", issuer=later), later[1])
        reason = "not yet valid"
    with pytest.raises(SignatureError, match=reason):
        Client(folder, verify=verify)


@attack("identity", "a certificate with the expected name that is not the one which was verified", before=OPENED)
@pytest.mark.parametrize("key", ["x509_certificate_chain", "certificate"])
def test_a_second_certificate_does_not_lend_its_name(key: str, folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    sign_with_certificate(folder, *authority.issue("mallory"))
    alice = as_material(authority.issue("alice")[1])
    material = {"certificates": [alice]} if "chain" in key else alice
    edit_signature(folder, lambda document: document["verificationMaterial"].update({key: material}))
    with pytest.raises(SignatureError):
        Client(folder, verify=Certificates(authority.root, identity="alice"))
    edit_signature(
        folder,
        lambda document: (
            document["verificationMaterial"].pop(key)
            and document["verificationMaterial"]["x509CertificateChain"]["certificates"].append(alice)
        ),
    )
    with pytest.raises(SignatureError, match="signed by mallory, expected alice"):
        Client(folder, verify=Certificates(authority.root, identity="alice"))


@attack("identity", "a signature of Sigstore that no log knows, for the expected identity", before=OPENED)
@pytest.mark.parametrize("logged", [False, True])
def test_a_forged_signature_of_sigstore_is_refused(logged: bool, folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    sign_with_certificate(folder, *authority.issue("alice", email="alice@example.com"))
    disguise_as_sigstore(folder, logged=logged)
    trust = write_trust_config(tmp_path / "trust.json", authority.root)
    with pytest.raises(SignatureError, match="certificate chain" if logged else "one log entry"):
        Client(folder, verify=Sigstore("alice@example.com", "https://accounts.example.com", trust))


def nested(document: dict[str, Any]) -> str:
    return "[" * 100_000


def without(*keys: str) -> Callable[[dict[str, Any]], str]:
    def change(document: dict[str, Any]) -> str:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]
        return json.dumps(document)

    return change


def with_value(value: Any, *keys: str) -> Callable[[dict[str, Any]], str]:
    def change(document: dict[str, Any]) -> str:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        return json.dumps(document)

    return change


SIGNATURES: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
    "empty": lambda document: "",
    "truncated": lambda document: json.dumps(document)[:-20],
    "not UTF-8": lambda document: b"\xff\xfe{}",
    "deeply nested": nested,
    "a huge number": lambda document: "9" * 100_000,
    "a list": lambda document: "[]",
    "another document": lambda document: "{}",
    "no material": without("verificationMaterial"),
    "no key": without("verificationMaterial", "publicKey"),
    "an empty key": with_value({"hint": ""}, "verificationMaterial", "publicKey"),
    "no envelope": without("dsseEnvelope"),
    "no signature": with_value([], "dsseEnvelope", "signatures"),
    "a signature of numbers": with_value([{"sig": 5, "keyid": ""}], "dsseEnvelope", "signatures"),
    "an empty signature": with_value([{"sig": "", "keyid": ""}], "dsseEnvelope", "signatures"),
    "another payload": with_value("e30=", "dsseEnvelope", "payload"),
    "another type": with_value("text/plain", "dsseEnvelope", "payloadType"),
    "another format": with_value("text/plain", "mediaType"),
}


@attack("identity", "a signature file that is damaged or hostile", before=UNLISTED)
@pytest.mark.parametrize("case", SIGNATURES)
def test_a_hostile_signature_is_refused(
    case: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private, public = write_key(tmp_path)
    signature = sign_with_key(folder, private)
    contents = SIGNATURES[case](json.loads(signature.read_text()))
    signature.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    with pytest.raises(SignatureError):
        open_bundle(folder, verify=PublicKey(public))
    open_bundle(folder)
    assert capsys.readouterr().out == ""


@attack("identity", "a signature file that is a link, a pipe, a folder or huge", before=UNLISTED)
@pytest.mark.parametrize("case", ["link", "pipe", "folder", "huge"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_signature_is_a_small_regular_file(case: str, folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    signature = sign_with_key(folder, private)
    moved = signature.rename(tmp_path / SIGNATURE)
    if case == "link":
        signature.symlink_to(moved)
    elif case == "pipe":
        os.mkfifo(signature)
    elif case == "folder":
        signature.mkdir()
    else:
        signature.write_bytes(moved.read_bytes() + b" " * (2 << 20))
    for verify in (None, PublicKey(public)):
        with pytest.raises(BundleError, match=r"model\.sig"):
            open_bundle(folder, verify=verify)


@no_attack
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_of_a_signature_raise_no_other_error(
    changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Such a signature is refused, or the changed bytes have no meaning. Then the bundle is the signed one."""
    place = tmp_path_factory.mktemp("fuzz")
    private, public = write_key(place)
    bundle = copy_of(small_bundle(), place / "bundle")
    signature = sign_with_key(bundle, private)
    contents = bytearray(signature.read_bytes())
    for position, byte in changes:
        contents[position % len(contents)] = byte
    signature.write_bytes(contents)
    try:
        opened = open_bundle(bundle, verify=PublicKey(public))
    except SignatureError:
        return
    assert opened.manifest == small_bundle().manifest


@attack("identity", "a signature that covers more files, fewer files or other hashes", before=OPENED)
@pytest.mark.parametrize("case", ["more", "fewer", "shards", "blake3"])
def test_exactly_the_files_of_the_bundle_are_signed(case: str, folder: Path, tmp_path: Path) -> None:
    from model_signing import hashing, signing

    private, public = write_key(tmp_path)
    signed, config = copy_of(small_bundle(), tmp_path / "signed"), hashing.Config()
    if case == "more":
        (signed / "readme.txt").touch()
    elif case == "fewer":
        config.set_ignored_paths(paths=["golden.npz"])
    elif case == "shards":
        config.use_shard_serialization()
    else:
        config.use_file_serialization(hashing_algorithm="blake3")
    made = folder / SIGNATURE
    signing.Config().use_elliptic_key_signer(private_key=private).set_hashing_config(config).sign(signed, made)
    with pytest.raises(SignatureError, match="belongs to other files"):
        open_bundle(folder, verify=PublicKey(public))


@attack("identity", "files replaced while the signature is checked", before=OPENED)
def test_files_that_are_replaced_while_the_signature_is_checked_have_no_effect(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle of somebody else is opened, and the signed one is put in its place for the moment of the check."""
    from model_signing import verifying

    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    forged = copy_of(small_bundle(), tmp_path / "forged")
    other_labels(forged)
    shutil.copy(folder / SIGNATURE, forged)
    check = verifying.Config.verify

    def swap_and_check(config: Any, model: Path, signature: Path) -> None:
        for path in folder.iterdir():
            shutil.copy(path, forged)
        check(config, model, signature)

    monkeypatch.setattr(verifying.Config, "verify", swap_and_check)
    with pytest.raises(SignatureError, match="belongs to other files"):
        open_bundle(forged, verify=PublicKey(public))
    open_bundle(forged, verify=PublicKey(public))  # now it is a copy of the signed one


@attack("identity", "another model in the folder of the built-in one", before="it ran as the built-in model")
def test_the_built_in_model_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "builtin"
    copied = shutil.copytree(builtin_bundle(), package / BUILTIN_MODEL)
    monkeypatch.setattr("bcos_sdk.bundle._builtin.builtin_dir", lambda: package)
    monkeypatch.setattr("bcos_sdk.bundle._store.builtin_dir", lambda: package)
    Client(BUILTIN_MODEL, device="cpu").close()
    edit_manifest(copied, lambda document: document["labels"].reverse())
    for model in (BUILTIN_MODEL, copied):
        with pytest.raises(HashMismatchError, match="Install bcos-sdk again"):
            Client(model)


@attack("identity", "a check of a signature that reports to a server", before=HELD)
@pytest.mark.skipif(not can_watch(), reason="needs Linux and a C compiler (Debian: apt install gcc)")
def test_keys_and_certificates_need_no_network(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    authority = Authority(tmp_path)
    alice = authority.issue("alice")
    program = f"""
import shutil
from pathlib import Path
from bcos_sdk import Certificates, Client, PublicKey
from bcos_sdk.bundle import Signer, SignWithKey, open_bundle
bundle = Path({str(folder)!r})
Signer(SignWithKey(Path({str(private)!r}))).sign(open_bundle(bundle))
Client(bundle, device="cpu", verify=PublicKey({str(public)!r})).close()
method = SignWithKey(Path({str(alice[0])!r}), None, Path({str(alice[1])!r}))
Signer(method).sign(open_bundle(bundle), force=True)
Client(bundle, device="cpu", verify=Certificates({str(authority.root)!r}, "alice")).close()
print("done")
import socket
try:
    socket.getaddrinfo("control.invalid", 80)
except OSError:
    pass
"""
    (tmp_path / "watched").mkdir()
    seen = watch(program, tmp_path / "watched")
    assert (seen.stdout.split(), seen.network, seen.files) == (["done"], ["lookup control.invalid"], set())


@attack("identity", "a replaced bundle that another process opens again", before=OPENED)
def test_a_pickled_client_checks_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    private, public = write_key(tmp_path)
    sign_with_key(folder, private)
    monkeypatch.chdir(tmp_path)
    image = random_pixels(1)[0]
    pickled = []
    for options in ({"verify": PublicKey(public.name)}, {"sha256": open_bundle(folder).sha256}):
        with Client(folder, device="cpu", **options) as client:
            pickled.append(pickle.dumps(client))
            expected = client.predict(image)
    monkeypatch.chdir("/")
    for one in pickled:
        with pickle.loads(one) as client:
            assert client.predict(image) == expected
    other_labels(folder)
    for one, kind in zip(pickled, (SignatureError, HashMismatchError), strict=True):
        with pytest.raises(kind):
            pickle.loads(one)
