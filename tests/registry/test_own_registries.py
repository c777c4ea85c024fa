"""Registry files of one's own: they join the built-in one, change its models, and name files beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.registries import ENTRY, write

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import RegistryError
from bcos_sdk.registry import LocalWeights, ModelSpec, builtin_registry, derive, load_registry, model_registry


def registry(folder: Path, **models: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    return write(folder, {"schema": 1, "models": models})


def test_own_files_join_the_built_in_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = registry(tmp_path / "a", one=ENTRY), registry(tmp_path / "b", two=ENTRY)
    assert model_registry() is builtin_registry()
    assert list(model_registry(first)) == [*builtin_registry(), "one"]
    monkeypatch.setenv("BCOS_SDK_REGISTRY", f"{first}{os.pathsep}{os.pathsep}{second}")
    assert list(model_registry()) == [*builtin_registry(), "one", "two"]
    assert list(model_registry(second, second)) == [*builtin_registry(), "one", "two"], "each file is read once"


def test_a_name_that_two_files_use_is_an_error_with_both_files(tmp_path: Path) -> None:
    first, second = registry(tmp_path / "a", one=ENTRY, resnet18=ENTRY), registry(tmp_path / "b", one=ENTRY)
    with pytest.raises(RegistryError) as caught:
        model_registry(first)
    assert str(first) in str(caught.value)
    assert "models.resnet18: the built-in models.yaml has a model of this name" in str(caught.value)
    first = registry(tmp_path / "a", one=ENTRY)
    with pytest.raises(RegistryError) as caught:
        model_registry(first, second)
    assert f"models.one: {first} has a model of this name" in str(caught.value)
    assert str(second) in str(caught.value)


def test_an_entry_can_change_a_built_in_model(tmp_path: Path) -> None:
    changes = {"classes": 7, "temperature": 5, "norm": {"eps": 1e-6}}
    entry = {"base": "resnet18", "architecture": changes, "input": {"size": [160, 160]}}
    path = registry(tmp_path, mine=entry, same={"base": "resnet18"})
    mine, base = load_registry(path)["mine"], builtin_registry()["resnet18"]
    config: Any = mine.architecture
    assert (config.classes, config.temperature, config.norm.eps, config.norm.kind) == (7, 5, 1e-6, "batch")
    assert (config.blocks, config.logit_bias) == ((2, 2, 2, 2), base.architecture.logit_bias)
    assert mine.input == InputSpec(size=(160, 160), resize=183, crop=(160, 160))
    assert (mine.base, mine.class_names, mine.weights) == ("resnet18", None, None)
    same = load_registry(path)["same"]
    assert (same.labels, same.weights, same.input) == ("imagenet", None, base.input)
    assert ModelSpec.model_validate_json(mine.model_dump_json()) == mine


def test_files_are_relative_to_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"base": "resnet18", "labels": {"file": "names.txt"}, "architecture": {"classes": 2}}
    path = registry(tmp_path / "models", mine=entry | {"weights": {"file": "weights/mine.pth", "sha256": "0" * 64}})
    (tmp_path / "models" / "names.txt").write_text("cat\ndog\n")
    monkeypatch.chdir(tmp_path)
    mine = load_registry(path.relative_to(tmp_path))["mine"]
    assert mine.class_names == ("cat", "dog")
    assert mine.weights == LocalWeights(file=tmp_path / "models" / "weights" / "mine.pth", sha256="0" * 64)
    assert mine.published_weights is None
    assert ModelSpec.model_validate_json(mine.model_dump_json()) == mine


@pytest.mark.parametrize(
    ("entry", "classes", "is_open"),
    [
        ({}, 1000, True),
        ({"architecture": {"b": 1.5}}, 1000, True),
        ({"architecture": {"classes": 1000}}, 1000, False),
        ({"architecture": {"classes": 7}}, 7, False),
        ({"labels": ["cat", "dog"]}, 2, False),
        ({"labels": {"file": "names.txt"}}, 3, False),
        ({"labels": "cifar10"}, 10, False),
    ],
)
def test_own_weights_leave_the_number_of_classes_open_unless_the_entry_says_it(
    tmp_path: Path, entry: dict[str, Any], classes: int, is_open: bool
) -> None:
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    spec = load_registry(registry(tmp_path, mine=entry | {"base": "resnet18", "weights": {"file": "mine.pth"}}))["mine"]
    assert (spec.architecture.classes, spec.classes_open) == (classes, is_open)
    assert derive(spec, settings={"b": 1.5}).classes_open == is_open
    assert not derive(spec, classes=classes).classes_open


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"base": "resnet1"}, "models.mine.base: 'resnet1' is not a built-in model"),
        ({"base": 3}, "models.mine.base: 3 is not a built-in model"),
        ({"base": "resnet18", "labels": {"file": "none.txt"}}, "models.mine.labels.file: cannot read the labels"),
        ({"base": "resnet18", "labels": {"path": "x"}}, "models.mine.labels: must be a label set, a list of names"),
        ({"base": "resnet18", "labels": ["cat"]}, "the network has 1000 classes, but 'labels' (own) has 1 names"),
        ({"base": "resnet18", "architecture": {"b": 0}}, "models.mine.architecture.resnet.b"),
        ({"base": "resnet18", "architecture": 3}, "models.mine.architecture"),
        ({"base": "resnet18", "input": {"size": "big"}}, "models.mine.input.size"),
        ({"base": "resnet18", "weights": {"file": 3}}, "models.mine.weights.file"),
        ({"base": "resnet18", "weights": {"file": "x"}, "labels": []}, "has 1000 classes, but 'labels' (own) has 0"),
        ({"base": "resnet18", "weights": {"file": "x"}, "labels": "flowers"}, "models.mine.labels"),
        ({"base": "resnet18", "weights": {"file": "x"}, "labels": ["a"], "architecture": 3}, "models.mine.architect"),
        ({"base": "resnet18", "classes_open": True}, "models.mine.classes_open: unknown key"),
        ({"base": "resnet18", "weights": {"file": "x", "sha256": "abc"}}, "models.mine.weights.sha256"),
        ({"base": "resnet18", "weights": {"file": "x", "url": "http://x/y"}}, "models.mine.weights.url"),
    ],
)
def test_a_faulty_entry_is_named_by_its_path(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistryError) as caught:
        load_registry(registry(tmp_path, mine=entry, good={"base": "resnet18"}))
    assert message in str(caught.value)


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    faulty = {"base": "resnet18", "architecture": {"b": 0, "nrom": 1}}
    with pytest.raises(RegistryError) as caught:
        load_registry(registry(tmp_path, a=faulty, b={"base": "none"}, c={"base": "resnet18", "surprise": 1}))
    assert len(caught.value.problems) == 4
