"""`Client(…, sha256=…, verify=…)`: only the bundle that the caller chose is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.bundles import copy_of, random_pixels, small_bundle
from support.signers import Authority, sign_with_certificate, sign_with_key, write_key

from bcos_sdk import Certificates, Client, PublicKey
from bcos_sdk.errors import HashMismatchError, InputError, SignatureError
from bcos_sdk.testing import FakeClient


def test_the_chosen_bundle_runs(tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    private, public = write_key(tmp_path)
    authority = Authority(tmp_path)
    image = random_pixels(1)[0]
    with Client(folder, device="cpu", sha256=small_bundle().sha256) as client:
        expected = client.predict(image)
    sign_with_key(folder, private)
    with Client(folder, device="cpu", sha256=small_bundle().sha256, verify=PublicKey(public)) as client:
        assert client.predict(image) == expected
    sign_with_certificate(folder, *authority.issue("alice"))
    with Client(folder, device="cpu", verify=Certificates(authority.root, identity="alice")) as client:
        assert client.predict(image) == expected


def test_another_bundle_is_refused() -> None:
    with pytest.raises(HashMismatchError):
        Client(small_bundle().path, sha256=small_bundle(labels=False).sha256)
    with pytest.raises(SignatureError, match=r"it has no model\.sig"):
        Client(small_bundle().path, verify=PublicKey("key.pub"))


@pytest.mark.parametrize("kind", [Client, FakeClient])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"verify": "key.pub"}, "verify is 'key.pub', expected PublicKey or Certificates or Sigstore or None"),
        ({"sha256": "abc"}, "expected 64 hexadecimal digits"),
    ],
)
def test_arguments_of_the_wrong_type(kind: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        kind(str(small_bundle().path), **options)
