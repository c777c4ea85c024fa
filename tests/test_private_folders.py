"""Cache and store: made for this user alone, and refused if other users can change them."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundles import copy_of, small_bundle

from bcos_sdk._private_folders import check_store, is_owner_trusted, private_cache, private_store
from bcos_sdk.bundle import BundleWriter
from bcos_sdk.errors import InputError, UntrustedFolderError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither owners nor modes of this kind")


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "new" / "cache"))
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "new" / "store"))


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The umask of systems on which each user has a group of their own."""
    old = os.umask(0o002)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_folders_are_made_for_this_user_alone(tmp_path: Path) -> None:
    assert private_cache("engines", "below") == tmp_path / "new" / "cache" / "engines" / "below"
    for folder in (private_cache(), private_cache("engines"), private_cache("engines", "below"), private_store()):
        assert mode(folder) == 0o700
    assert mode(tmp_path / "new") == 0o775, "folders above are made as usual"


@pytest.mark.usefixtures("open_umask")
def test_a_bundle_in_the_store_can_be_changed_by_this_user_alone(tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "new" / "store" / "net") as writer:
        assert mode(writer.folder) == 0o755
    with BundleWriter(tmp_path / "elsewhere" / "net") as writer:
        assert mode(writer.folder) == 0o775, "elsewhere the user's own rules hold"


@pytest.mark.parametrize(("before", "after"), [(0o775, 0o755), (0o777, 0o755), (0o770, 0o750), (0o2775, 0o2755)])
def test_a_folder_of_ours_is_closed_to_writers_once(
    tmp_path: Path, before: int, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = copy_of(small_bundle(), tmp_path / "new" / "store" / "net")
    bundle.chmod(0o755)
    folder = bundle.parent
    folder.chmod(before)
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        check_store("net")
        check_store("net")
    assert mode(folder) == after, "who may read it stays as it was"
    assert len([record for record in caplog.records if record.name == "bcos_sdk"]) == 1


def test_a_folder_whose_mode_cannot_be_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without permissions."""
    private_store().chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda _self, _mode: None)
    with pytest.raises(UntrustedFolderError, match="can be changed by other users: its mode is 777"):
        private_store()


def test_further_owners_are_trusted_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me, status = os.getuid(), tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert is_owner_trusted(status) == (me == 0)
    for named in (str(me), f"root, {me}"):
        monkeypatch.setenv("BCOS_SDK_TRUSTED_OWNERS", named)
        assert is_owner_trusted(status)
    monkeypatch.setenv("BCOS_SDK_TRUSTED_OWNERS", "nobody-of-this-name")
    with pytest.raises(InputError, match="'nobody-of-this-name', but there is no such user"):
        is_owner_trusted(status)


def test_a_link_of_ours_to_a_folder_of_ours_is_used(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "large disk").mkdir(0o755)
    (tmp_path / "new" / "cache").symlink_to(tmp_path / "large disk")
    private_cache("weights")
    assert mode(tmp_path / "large disk" / "weights") == 0o700
