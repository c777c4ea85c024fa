"""A name that is no model: every command says which one may be meant, and what can be exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.bundles import copy_of, small_bundle

from bcos_sdk.bundle import find_folder
from bcos_sdk.cli import main
from bcos_sdk.errors import BundleError

COMMANDS = ["layers NAME", "web NAME out", "triton NAME out", "inspect NAME", "validate NAME", "predict . --model NAME"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "store"
    monkeypatch.setenv("BCOS_SDK_STORE", str(folder))
    copy_of(small_bundle(), folder / "flowers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image.png").write_bytes(b"")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "near"), [("rasnet50", "resnet50"), ("flower", "flowers"), ("pets37_resnet18", "pets37_resnet18_w32")]
)
def test_the_nearest_name_of_registry_store_and_package_is_suggested(command: str, name: str, near: str) -> None:
    result = CliRunner().invoke(main, command.replace("NAME", name).split())
    assert result.exit_code == 1
    assert f"Did you mean {near}?" in result.stderr
    assert f"export {name}" not in result.stderr


def test_a_name_of_the_registry_can_be_exported() -> None:
    result = CliRunner().invoke(main, ["web", "resnet50", "out"])
    assert "Export it with `bcos-sdk export resnet50`" in result.stderr
    assert "Did you mean" not in result.stderr


def test_a_name_that_is_like_no_other_gets_the_lists() -> None:
    result = CliRunner().invoke(main, ["web", "qqqqqq", "out"])
    assert "The store has flowers. `bcos-sdk models list` lists the exports" in result.stderr


def test_models_of_own_registries_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("schema: 1\nmodels:\n  gardens:\n    base: resnet18\n")
    result = CliRunner().invoke(main, ["layers", "garden", "--registry", str(own)])
    assert "Did you mean gardens?" in result.stderr
    monkeypatch.setenv("BCOS_SDK_REGISTRY", str(tmp_path / "missing.yaml"))
    with pytest.raises(BundleError, match=r"Did you mean flowers\?"):
        find_folder("flower")
