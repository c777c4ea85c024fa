"""The built-in registry, and what a user's own registry can contain."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from support.registries import ENTRY, with_change, write

from bcos_sdk.errors import UnknownModelError
from bcos_sdk.registry import ModelSpec, WeightsSource, builtin_registry, load_registry
from bcos_sdk.registry.architectures import ResNetConfig


def test_the_shipped_registry_is_valid_and_complete() -> None:
    registry = builtin_registry()
    assert sum(spec.dataset == "imagenet" for spec in registry.values()) == 26
    assert sum(spec.dataset == "cifar10" for spec in registry.values()) == 296 + 14 + 1


def test_a_spec_round_trips_through_json() -> None:
    for spec in builtin_registry().values():
        assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.needs_torch
def test_a_new_member_of_a_family_needs_only_an_entry(tmp_path: Path) -> None:
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


def test_an_unknown_name_suggests_similar_names() -> None:
    with pytest.raises(UnknownModelError, match="resnet152") as caught:
        builtin_registry().find("resnet_152")
    assert caught.value.source == "resnet_152"


@pytest.mark.parametrize("axis", ["0", "b.real", "b!r", "b:9"])
def test_a_placeholder_is_not_a_format_expression(tmp_path: Path, axis: str) -> None:
    entry = {**ENTRY, "matrix": {axis: {"small": {}, "{tiny}": {}}}}
    registry = load_registry(write(tmp_path, {"schema": 1, "models": {f"m-{{{axis}}}": entry}}))
    assert list(registry) == ["m-small", "m-{tiny}"]


def test_an_entry_can_list_its_own_labels(tmp_path: Path) -> None:
    document = with_change("labels", ["cat", "dog", "cat"])
    document["models"]["mine"]["architecture"]["classes"] = 3
    spec = load_registry(write(tmp_path, document))["mine"]
    assert spec.class_names == ("cat", "dog", "cat")
    assert spec.dataset == "own"
    assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec
    assert builtin_registry()["resnet18"].dataset == "imagenet"


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("net-0123456789.pth", "net-0123456789.pth"),
        ("net.pth", "net-0123456789.pth"),
        ("net-9876543210.pth", "net-9876543210-0123456789.pth"),
        ("net-0123456789-9876543210.pth", "net-0123456789-9876543210-0123456789.pth"),
        ("net", "net-0123456789"),
    ],
)
def test_the_file_name_in_the_cache_ends_with_the_hash(name: str, file_name: str) -> None:
    url = f"https://example.org/releases/{name}?download=1"
    assert WeightsSource(url=url, sha256_prefix="0123456789", licence="").file_name == file_name


def test_a_whole_hash_needs_no_prefix() -> None:
    fields = {"url": "https://example.org/net.pth", "sha256": "0123456789" + "a" * 54, "licence": ""}
    source = WeightsSource.model_validate(fields)
    assert (source.file_name, source.full_sha256) == ("net-0123456789.pth", fields["sha256"])
    assert WeightsSource.model_validate(source.model_dump()) == source
    as_prefix = {"url": fields["url"], "sha256_prefix": fields["sha256"], "licence": ""}
    assert WeightsSource.model_validate(as_prefix).full_sha256 == fields["sha256"]
    assert WeightsSource(url=fields["url"], sha256_prefix="0123456789", licence="").full_sha256 is None


def test_merge_keys_are_not_duplicate_keys(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(
        dedent("""
            schema: 1
            shared:
              small: &small {<<: &base {family: resnet, classes: 10}, block: basic, stem: cifar, blocks: [1]}
            models:
              a: &a
                description: first
                labels: cifar10
                input: {size: [32, 32], resize: null, crop: null}
                architecture: {<<: *small, blocks: [2], b: 1}
              b: {<<: *a, description: second}
              c: {<<: [*a], description: third, architecture: {<<: [*small, *base], blocks: [3]}}
        """),
        "utf-8",
    )
    registry = load_registry(path)
    assert [spec.description for spec in registry.values()] == ["first", "second", "third"]
    blocks = [config.blocks for spec in registry.values() if isinstance(config := spec.architecture, ResNetConfig)]
    assert blocks == [(2,), (2,), (3,)]


def test_label_sets_have_no_blank_names() -> None:
    from bcos_sdk.registry import load_labels

    assert load_labels("imagenet")[0] == "tench"
    assert load_labels("imagenet")[-1] == "toilet tissue"
    assert load_labels("cifar10")[3] == "cat"
    for name in (*load_labels("imagenet"), *load_labels("cifar10")):
        assert name == name.strip() != ""
