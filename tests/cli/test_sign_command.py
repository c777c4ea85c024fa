"""`bcos-sdk sign`, and the options of `validate`, `predict`, `inspect` and `export` that concern signatures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.bundles import copy_of, edit_manifest, small_bundle
from support.signers import Authority, write_key

from bcos_sdk import PublicKey
from bcos_sdk.bundle import SIGNATURE, open_bundle
from bcos_sdk.cli import main


def run(*arguments: object, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=typed)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return copy_of(small_bundle(), tmp_path / "bundle")


def test_sign_and_validate_with_a_key(bundle: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    unsigned = run("validate", bundle, "--public-key", public)
    assert (unsigned.exit_code, "[signature_invalid]" in unsigned.stderr) == (1, True)
    signed = run("sign", bundle, "--key", private)
    assert signed.exit_code == 0, signed.stderr
    assert f"sha256 {open_bundle(bundle).sha256}" in signed.stdout
    right = run("validate", bundle, "--device", "cpu", "--public-key", public, "--sha256", open_bundle(bundle).sha256)
    assert right.exit_code == 0, right.stderr
    assert f"ok  signature     verified with the public key {public}" in right.stdout
    assert "ok  sha256" in right.stdout
    unchecked = run("validate", bundle, "--device", "cpu")
    assert "--  signature     key, not checked" in unchecked.stdout
    wrong = run("validate", bundle, "--public-key", write_key(tmp_path, "other")[1])
    assert (wrong.exit_code, "[signature_invalid]" in wrong.stderr) == (1, True)
    edit_manifest(bundle, lambda document: document["labels"].reverse())
    changed = run("validate", bundle, "--public-key", public)
    assert (changed.exit_code, "belongs to other files" in changed.stderr) == (1, True)
    pinned = run("validate", bundle, "--sha256", "0" * 64)
    assert (pinned.exit_code, "[hash_mismatch]" in pinned.stderr) == (1, True)


def test_sign_and_validate_with_a_certificate(bundle: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    between = authority.issue("between", is_authority=True)
    private, certificate = authority.issue("alice", email="alice@example.com", issuer=between)
    signed = run("sign", bundle, "--key", private, "--certificate", certificate, "--chain", between[1])
    assert signed.exit_code == 0, signed.stderr
    trusted = ("validate", bundle, "--device", "cpu", "--certificate-chain", authority.root)
    assert run(*trusted).exit_code == 0
    assert run(*trusted, "--identity", "alice@example.com").exit_code == 0
    mallory = run(*trusted, "--identity", "mallory@example.com")
    assert (mallory.exit_code, "signed by alice, alice@example.com" in mallory.stderr) == (1, True)


def test_a_second_signature_needs_force(bundle: Path, tmp_path: Path) -> None:
    private, _ = write_key(tmp_path)
    other, public = write_key(tmp_path, "other")
    assert run("sign", bundle, "--key", private).exit_code == 0
    refused = run("sign", bundle, "--key", other)
    assert (refused.exit_code, "[bundle_exists]" in refused.stderr) == (1, True)
    assert run("sign", bundle, "--key", other, "--force").exit_code == 0
    open_bundle(bundle, verify=PublicKey(public))


def test_the_password_is_asked_for_or_in_the_environment(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, _ = write_key(tmp_path, password="secret")
    asked = run("sign", bundle, "--key", private, typed="secret\n")
    assert asked.exit_code == 0, asked.stderr
    assert "secret" not in asked.output
    monkeypatch.setenv("BCOS_SDK_SIGN_PASSWORD", "secret")
    assert run("sign", bundle, "--key", private, "--force").exit_code == 0
    monkeypatch.setenv("BCOS_SDK_SIGN_PASSWORD", "wrong")
    wrong = run("sign", bundle, "--key", private, "--force")
    assert (wrong.exit_code, "[input_invalid]" in wrong.stderr) == (1, True)


def test_predict_accepts_only_the_named_bundle(bundle: Path, tmp_path: Path, photograph: Path) -> None:
    private, public = write_key(tmp_path)
    run("sign", bundle, "--key", private)
    call = ("predict", photograph, "--model", bundle, "--device", "cpu")
    right = run(*call, "--public-key", public, "--sha256", open_bundle(bundle).sha256)
    assert right.exit_code == 0, right.stderr
    for wrong, code in (
        (("--public-key", write_key(tmp_path, "other")[1]), "signature_invalid"),
        (("--sha256", "0" * 64), "hash_mismatch"),
    ):
        refused = run(*call, *wrong)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"[{code}]" in refused.stderr


@pytest.mark.needs_torch
def test_inspect_shows_digest_and_kind(bundle: Path, tmp_path: Path) -> None:
    sha256 = open_bundle(bundle).sha256
    assert "signature      none" in run("inspect", bundle).stdout
    run("sign", bundle, "--key", write_key(tmp_path)[0])
    text = run("inspect", bundle).stdout
    assert f"sha256         {sha256}" in text
    assert "signature      key, not checked" in text
    document = json.loads(run("inspect", bundle, "--json").stdout)
    assert (document["sha256"], document["signature"]) == (sha256, "key")
    (bundle / SIGNATURE).write_text("[" * 100_000)
    assert json.loads(run("inspect", bundle, "--json").stdout)["signature"] == "unknown"


@pytest.mark.needs_torch
def test_export_signs(tmp_path: Path) -> None:
    private, public = write_key(tmp_path)
    call = ("export", "cifar10_resnet18_w16", "--max-batch", 1, "-o", tmp_path / "out")
    missing = run(*call, "--sign-key", tmp_path / "missing.pem")
    assert (missing.exit_code, (tmp_path / "out").exists()) == (1, False)
    done = run(*call, "--sign-key", private)
    assert done.exit_code == 0, done.stderr
    assert open_bundle(tmp_path / "out", verify=PublicKey(public)).sha256 in done.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["sign", "x"], "pass --key FILE or --sigstore"),
        (["sign", "x", "--key", "k", "--sigstore"], "--key and --sigstore cannot be used together"),
        (["sign", "x", "--certificate", "c"], "--certificate needs --key"),
        (["sign", "x", "--chain", "c"], "--chain needs --key"),
        (["sign", "x", "--key", "k", "--chain", "c"], "--chain needs --certificate"),
        (["sign", "x", "--key", "k", "--trust-config", "c"], "--trust-config needs --sigstore"),
        (["export", "x", "--sign-certificate", "c"], "--sign-certificate needs --sign-key"),
        (["validate", "x", "--identity", "me"], "--identity needs --issuer"),
        (["validate", "x", "--issuer", "https://example.com"], "--issuer needs --identity"),
        (["validate", "x", "--public-key", "k", "--identity", "me"], "a key has no name"),
        (["validate", "x", "--public-key", "k", "--certificate-chain", "c"], "cannot be used together"),
        (["validate", "x", "--certificate-chain", "c", "--issuer", "u"], "cannot be used together"),
        (["validate", "x", "--trust-config", "c"], "--trust-config needs --issuer"),
        (["validate", "x", "--sha256", "abc"], "expected 64 hexadecimal digits"),
    ],
)
def test_wrong_combinations_are_usage_errors(arguments: list[str], reason: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
