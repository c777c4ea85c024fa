"""Which model an argument means: a path, a registry name, a name in the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import copy_of, small_bundle

from bcos_sdk.cli.benchmark._subject import check_subject, prepare_subject
from bcos_sdk.errors import BundleError, InputError, UnknownModelError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "store"))
    for name in ("mine", "resnet18"):
        copy_of(small_bundle(), tmp_path / "store" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


def test_a_registry_name_means_the_registry_even_if_the_store_has_that_name(store: Path) -> None:
    assert check_subject("resnet18", 8) is None
    (store.parent / "resnet50").mkdir()
    assert check_subject("resnet50", 8) is None, "an empty folder is not a bundle"


def test_names_in_the_store_and_folders_are_bundles(store: Path) -> None:
    copy_of(small_bundle(), store.parent / "here")
    for model in ("mine", str(store / "resnet18"), "store/mine", "./here"):
        bundle = check_subject(model, 2)
        assert bundle is not None
        assert bundle.manifest.model.name == "small"
    subject = prepare_subject("mine", store.parent / "unused", 2, lambda _stage: None)
    assert (subject.name, subject.spec, subject.export_seconds, subject.state) == ("small", None, None, None)
    assert not (store.parent / "unused").exists()


def test_a_folder_in_the_current_one_needs_a_separator(store: Path) -> None:
    for name in ("here", "resnet50"):
        copy_of(small_bundle(), store.parent / name)
    with pytest.raises(BundleError, match=r"pass \./here"):
        check_subject("here", 2)
    assert check_subject("resnet50", 2) is None, "the registry model"


def test_missing_models_and_large_batches_are_refused(store: Path) -> None:
    with pytest.raises(UnknownModelError, match="Did you mean resnet18"):
        check_subject("resnet_18", 2)
    with pytest.raises(UnknownModelError):
        check_subject("x" * 5000, 2)
    with pytest.raises(BundleError, match="no such folder"):
        check_subject("store/nobody", 2)
    with pytest.raises(InputError, match="at most 4, got a batch of 9"):
        check_subject("mine", 9)
