"""Model repositories are written whole or not at all, and nothing that bcos-sdk did not write is replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.bundles import small_bundle

from bcos_sdk.errors import BcosError, OutputError, OutputExistsError
from bcos_sdk.triton import RepositorySettings, write_repository


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_both_models_share_the_weights_and_nothing_is_linked_to_the_bundle(tmp_path: Path) -> None:
    bundle = small_bundle()
    name = bundle.manifest.weights
    first, second = (
        one.path / "1" / name for one in write_repository(bundle, tmp_path / "models", RepositorySettings())
    )
    assert first.samefile(second)
    assert not first.samefile(bundle.path / name)
    assert first.read_bytes() == (bundle.path / name).read_bytes()


def test_without_hard_links_the_weights_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("the file system has no links")

    monkeypatch.setattr(os, "link", refuse)
    first, second = (
        one.path / "1" / small_bundle().manifest.weights
        for one in write_repository(small_bundle(), tmp_path / "models")
    )
    assert not first.samefile(second)
    assert first.read_bytes() == second.read_bytes()


def test_other_models_in_the_repository_stay(tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "other").mkdir(parents=True)
    (models / "other" / "config.pbtxt").write_text('backend: "python"')
    write_repository(small_bundle(), models)
    write_repository(small_bundle(), models, RepositorySettings(name="second"))
    assert sorted(one.name for one in models.iterdir()) == [
        "other", "second", "second_explain", "small", "small_explain"
    ]  # fmt: skip
    assert [one.name for one in tmp_path.iterdir()] == ["models"]
    with pytest.raises(OutputExistsError, match="was not written by bcos-sdk"):
        write_repository(small_bundle(), models, RepositorySettings(name="other"), overwrite=True)
    assert contents(models / "other") == {"config.pbtxt": b'backend: "python"'}


def test_a_model_is_replaced_only_if_asked_for(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_repository(small_bundle(), models)
    before = contents(models)
    with pytest.raises(OutputExistsError, match=r"small exists already"):
        write_repository(small_bundle(), models, RepositorySettings(weights=True))
    assert contents(models) == before
    write_repository(small_bundle(), models, RepositorySettings(weights=True), overwrite=True)
    changed = {name for name, value in contents(models).items() if value != before[name]}
    assert changed == {"small_explain/config.pbtxt", "small_explain/1/model.onnx"}
    assert [one.name for one in tmp_path.iterdir()] == ["models"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_while_writing_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    models = tmp_path / "models"
    if exists:
        write_repository(small_bundle(), models)
    before = contents(tmp_path)
    write_text = Path.write_text

    def full(self: Path, *arguments: Any, **more: Any) -> int:
        if self.parent.name == "small_explain":
            raise OSError(28, "No space left on device")
        return write_text(self, *arguments, **more)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_repository(small_bundle(), models, overwrite=True)
    assert contents(tmp_path) == before
    assert models.exists() == exists


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_failure_while_models_are_exchanged_moves_the_old_ones_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Two models are replaced by four renames. Whichever fails, both old models are there afterwards."""
    models = tmp_path / "models"
    write_repository(small_bundle(), models)
    before = contents(tmp_path)
    rename, calls = Path.rename, 0

    def fail(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        write_repository(small_bundle(), models, RepositorySettings(weights=True), overwrite=True)
    assert contents(tmp_path) == before


def test_what_a_killed_process_left_is_cleaned_up(tmp_path: Path) -> None:
    """It was killed between the two renames of a model: the old model is beside the repository."""
    models = tmp_path / "models"
    write_repository(small_bundle(), models)
    before = contents(models)
    dead = 2**22 + 1  # beyond the largest process id of Linux
    staging = tmp_path / f".models.partial-{dead}"
    (staging / "replaced").mkdir(parents=True)
    (models / "small").rename(staging / "replaced" / "small")
    (staging / "small").mkdir()
    running = tmp_path / f".models.partial-{os.getppid()}"
    running.mkdir()
    write_repository(small_bundle(), models, RepositorySettings(name="second"))
    assert not staging.exists()
    assert running.exists(), "another process still writes there"
    assert {name: value for name, value in contents(models).items() if name.startswith("small")} == before


def test_places_that_cannot_be_a_repository_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "models" / "small").symlink_to(tmp_path / "elsewhere")
    bundle = shutil.copytree(small_bundle().path, tmp_path / "bundle")
    for place, message in (("file", "is a file"), ("bundle", "is a bundle"), ("models", "was not written by bcos-sdk")):
        with pytest.raises(OutputError, match=message):
            write_repository(small_bundle(), tmp_path / place, overwrite=True)
    assert contents(bundle) == contents(small_bundle().path)
    assert not any((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(BcosError, match="cannot write the model repository") as refused:
        write_repository(small_bundle(), tmp_path / "file" / "models")
    assert refused.value.code == "output_failed"
    assert "No model was written" in (refused.value.hint or "")
