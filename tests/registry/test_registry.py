"""models.yaml as shipped, and what a faulty registry is told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from bcos_sdk.errors import RegistryError, UnknownModelError
from bcos_sdk.registry import ModelSpec, builtin_registry, load_registry
from bcos_sdk.registry.architectures import ResNetConfig

ENTRY: dict[str, Any] = {
    "description": "a small one",
    "labels": "cifar10",
    "input": {"size": [32, 32], "resize": None, "crop": None},
    "architecture": {"family": "resnet", "block": "basic", "blocks": [1, 1], "stem": "cifar", "classes": 10},
}


def write(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return path


def with_change(path: str, value: object) -> dict[str, Any]:
    """A registry whose one entry has one key changed."""
    entry = json.loads(json.dumps(ENTRY))
    node = entry
    *parents, last = path.split(".")
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
    return {"schema": 1, "models": {"mine": entry}}


def test_the_shipped_registry_is_valid_and_complete() -> None:
    registry = builtin_registry()
    assert sum(spec.labels == "imagenet" for spec in registry.values()) == 26
    assert sum(spec.labels == "cifar10" for spec in registry.values()) == 296 + 14


@pytest.mark.parametrize("name", [n for n, s in builtin_registry().items() if s.weights])
def test_published_entries_agree_with_themselves(name: str) -> None:
    spec = builtin_registry()[name]
    assert spec.weights is not None
    assert spec.weights.file_name.endswith(f"-{spec.weights.sha256_prefix}.pth")
    assert spec.architecture.bias == pytest.approx(-math.log(999), abs=1e-15)
    assert spec.input.size == (224, 224)
    long_recipe = name.startswith("convnext") or name.endswith("_long")
    assert spec.input.resize == (232 if long_recipe else 256)
    assert spec.published.top1 is not None
    assert spec.published.top5 is not None
    assert 50 < spec.published.top1 < spec.published.top5 < 100


def test_a_spec_survives_json() -> None:
    for spec in builtin_registry().values():
        assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_new_member_of_a_family_is_an_entry_and_nothing_else(tmp_path: Path) -> None:
    from bcos_sdk.models import build_model

    spec = load_registry(write(tmp_path, {"schema": 1, "models": {"mine": ENTRY}}))["mine"]
    assert sum(1 for name, _ in build_model(spec).named_modules() if name.endswith(".conv2")) == 2


def test_a_matrix_gives_every_combination(tmp_path: Path) -> None:
    depths = {"a": {"architecture": {"blocks": [1]}}, "b": {"architecture": {"blocks": [2]}}}
    exponents = {1: {"architecture": {"b": 1}}, 2: {"architecture": {"b": 2}}}
    entry = {**ENTRY, "matrix": {"depth": depths, "b": exponents}}
    registry = load_registry(write(tmp_path, {"schema": 1, "models": {"{depth}-b{b}": entry}}))
    assert list(registry) == ["a-b1", "a-b2", "b-b1", "b-b2"]
    config = registry["b-b1"].architecture
    assert isinstance(config, ResNetConfig)
    assert (config.blocks, config.b) == ((2,), 1)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("architecture.blocks", "many", "models.mine.architecture.resnet.blocks"),
        ("architecture.blocks", [1, 0], "models.mine.architecture.resnet.blocks.1"),
        ("architecture.b", 0.5, "models.mine.architecture.resnet.b"),
        ("architecture.family", "transfomer", "models.mine.architecture"),
        ("architecture.depht", 3, "models.mine.architecture.resnet.depht: Extra inputs"),
        ("architecture.classes", 11, "11 classes, but label set 'cifar10' has 10 names"),
        ("architecture.channels", 3, "'rgb+complement' gives 6 channels, not 3"),
        ("architecture.norm", {"kind": "group"}, "'groups' must be given for kind 'group'"),
        ("labels", "imagnet", "models.mine.labels"),
        ("input.size", [32], "models.mine.input.size"),
        ("input.crop", [28, 28], "does not give 'size'"),
        ("weights", {"url": "ftp://x", "sha256_prefix": "0" * 10, "licence": ""}, "models.mine.weights.url"),
        ("weights", {"url": "http://x/y", "sha256_prefix": "xyz", "licence": ""}, "weights.sha256_prefix"),
        ("published.top1", 101, "models.mine.published.top1"),
        ("matrix", [1, 2], "models.mine.matrix"),
        ("surprise", 1, "models.mine.surprise"),
    ],
)
def test_a_faulty_key_is_named_by_its_path(tmp_path: Path, path: str, value: object, said: str) -> None:
    with pytest.raises(RegistryError) as caught:
        load_registry(write(tmp_path, with_change(path, value)))
    assert said in str(caught.value)
    assert caught.value.code == "registry_invalid"
    assert caught.value.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping"),
        ("[]", "must be a mapping"),
        ("schema: 2\nmodels: {}", "schema: must be 1, got 2"),
        ("schema: 1\nmodels: []", "models: must be a mapping"),
        ("schema: 1\nmodels: {a: 1}", "models.a: must be a mapping"),
        ("schema: 1\nmodels: {}\nextra: 1", "extra: unknown key"),
        ("schema: 1\nmodels: {a: [}", "not valid YAML"),
        ("schema: 1\nmodels: {a: {}, a: {}}", "the key 'a' stands twice"),
        ("schema: 1\nmodels: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_registry_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(dedent(text), "utf-8")
    with pytest.raises(RegistryError) as caught:
        load_registry(path)
    assert said in str(caught.value)


def test_a_missing_file_is_a_registry_error(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot be read"):
        load_registry(tmp_path / "none.yaml")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownModelError, match="resnet152") as caught:
        builtin_registry().find("resnet_152")
    assert caught.value.source == "resnet_152"


def test_label_sets_have_no_blank_names() -> None:
    from bcos_sdk.labels import load_labels

    assert load_labels("imagenet")[0] == "tench"
    assert load_labels("imagenet")[-1] == "toilet tissue"
    assert load_labels("cifar10")[3] == "cat"
    for name in (*load_labels("imagenet"), *load_labels("cifar10")):
        assert name == name.strip() != ""
