"""A faulty registry raises a RegistryError that names the faulty key by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.registries import ENTRY, with_change, write

from bcos_sdk.errors import RegistryError
from bcos_sdk.registry import load_registry

BOTTLENECK = {"family": "resnet", "block": "bottleneck", "blocks": [1], "classes": 10}
VIT = {"family": "vit", "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16, "patch": 16, "classes": 10}


def nested_aliases(name: str, depth: int) -> str:
    lines = [
        f"  {name}0: &{name}0 {{x: 1}}",
        *(f"  {name}{i}: &{name}{i} {{x: *{name}{i - 1}}}" for i in range(1, depth)),
    ]
    return "\n".join(lines)


DEEP = f"""schema: 1
shared:
{nested_aliases("a", 2000)}
{nested_aliases("b", 2000)}
models: {{"m{{n}}": {{input: *a1999, matrix: {{n: {{1: {{input: *b1999}}}}}}}}}}
"""


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("architecture.blocks", "many", "models.mine.architecture.resnet.blocks"),
        ("architecture.blocks", [1, 0], "models.mine.architecture.resnet.blocks.1"),
        ("architecture.b", 0.5, "models.mine.architecture.resnet.b"),
        ("architecture.family", "transfomer", "models.mine.architecture"),
        ("architecture.depht", 3, "models.mine.architecture.resnet.depht: Extra inputs"),
        ("architecture.classes", 11, "the network has 11 classes, but 'labels' (cifar10) has 10 names"),
        ("architecture.channels", 3, "'channels' must be 6 for 'rgb+complement', got 3"),
        ("architecture.norm", {"kind": "group"}, "'groups' must be given for kind 'group'"),
        ("architecture.b", float("nan"), "models.mine.architecture.resnet.b"),
        ("architecture.logit_bias", float("inf"), "models.mine.architecture.resnet.logit_bias"),
        ("architecture.norm", {"kind": "batch", "eps": float("inf")}, "models.mine.architecture.resnet.norm.eps"),
        ("architecture.groups", 2, "'groups' and 'base_width' need block 'bottleneck'"),
        ("architecture.base_width", 128, "'groups' and 'base_width' need block 'bottleneck'"),
        ("architecture", {**BOTTLENECK, "width": 8, "base_width": 4}, "is less than one channel in the bottleneck"),
        ("architecture", {**VIT, "dim": 4, "heads": 1}, "models.mine.architecture.vit.dim"),
        ("architecture", {**VIT, "patch": 5}, "'size' (32, 32) is not a multiple of the patch size 5"),
        ("architecture", {**VIT, "stem": [8, 16, 16]}, "is not a multiple of the patch size 64"),
        ("labels", "imagnet", "models.mine.labels"),
        ("labels", ["one", "two"], "the network has 10 classes, but 'labels' (own) has 2 names"),
        ("labels", ["one", ""], "models.mine.labels.names.1"),
        ("labels", ["yes", False], "models.mine.labels.names.1"),
        ("labels", 10, "models.mine.labels.names"),
        ("input.size", [32], "models.mine.input.size"),
        ("input.crop", [28, 28], "does not give 'size'"),
        ("input", {"size": [32, 40], "resize": 36, "crop": [32, 40]}, "'crop' (32, 40) is larger than 'resize' 36"),
        ("weights", {"url": "ftp://x", "sha256_prefix": "0" * 10, "licence": ""}, "models.mine.weights.url"),
        ("weights", {"url": "http://x/y", "sha256_prefix": "xyz", "licence": ""}, "weights.sha256_prefix"),
        ("weights", {"url": "http://x/y", "sha256": "0" * 63, "licence": ""}, "weights.sha256"),
        ("weights", {"url": "http://x/y", "sha256": "0" * 64, "sha256_prefix": "1" * 8, "licence": ""}, "weights"),
        ("weights", {"url": "http://x/y", "sha256": "0" * 64, "size": 0, "licence": ""}, "weights.size"),
        ("published.top1", 101, "models.mine.published.top1"),
        ("name", "other", "models.mine.name: unknown key"),
        ("matrix", [1, 2], "models.mine.matrix"),
        ("surprise", 1, "models.mine.surprise"),
    ],
)
def test_a_faulty_key_is_named_by_its_path(tmp_path: Path, path: str, value: object, message: str) -> None:
    with pytest.raises(RegistryError) as caught:
        load_registry(write(tmp_path, with_change(path, value)))
    assert message in str(caught.value)
    assert caught.value.code == "registry_invalid"
    assert caught.value.problems


@pytest.mark.parametrize(
    "url",
    [
        "https:///net.pth",
        "https://example.org",
        "https://example.org/",
        "https://example.org/folder/",
        "https://example.org/..",
        "https://example.org/...",
        "https://example.org/a%2Fb.pth",
        "https://example.org/a\\b.pth",
        "https://example.org/a b.pth",
        "https://example.org/nét.pth",
        "https://exämple.org/net.pth",
        "https://example.org/net.pth\n",
        "https://example.org:port/net.pth",
        "https://example.org:0/net.pth",
        "https://example.org:65536/net.pth",
        "https://[::1/net.pth",
        "file:///etc/passwd",
        "example.org/net.pth",
    ],
)
def test_a_url_without_a_file_name_is_refused(tmp_path: Path, url: str) -> None:
    weights = {"url": url, "sha256_prefix": "0" * 10, "licence": ""}
    with pytest.raises(RegistryError) as caught:
        load_registry(write(tmp_path, with_change("weights", weights)))
    (problem,) = caught.value.problems
    assert problem.startswith("models.mine.weights.url: ")


def matrix(name: str, axes: Any) -> dict[str, Any]:
    return {"schema": 1, "models": {name: {**ENTRY, "matrix": axes}}}


@pytest.mark.parametrize(
    ("name", "axes", "message"),
    [
        ("m{0}", {"b": {1: {}}}, "the name has the placeholder {0}, but the matrix has no such axis"),
        ("m{}", {"b": {1: {}}}, "the name has the placeholder {}, but the matrix has no such axis"),
        ("m{b.real}", {"b": {1: {}}}, "the name has the placeholder {b.real}, but the matrix has no such axis"),
        ("m{b!r}", {"b": {1: {}}}, "the name has the placeholder {b!r}, but the matrix has no such axis"),
        ("m{b:99999999999}", {"b": {1: {}}}, "but the matrix has no such axis"),
        ("m{b}", {"b": {1: {}}, "c": {1: {}}}, "the axis 'c' is not a {placeholder} of the name"),
        ("m{b}", {}, "must map each {placeholder}"),
        ("m{b}", None, "must map each {placeholder}"),
        ("m{b}", {"b": {}}, "'b' must map at least one value"),
        ("m{b}", {"b": [1, 2]}, "'b' must map at least one value"),
        ("m{b}", {"b": {1: None}}, "'b': the fields of the value '1' must be a mapping"),
        ("m{b}", {"b": {1: {}, "1": {}}}, "the name 'm1' is used twice"),
        ("m{b}", {"b": {1: {"name": "mine"}}}, "models.m1.name: unknown key"),
    ],
)
def test_an_invalid_matrix_is_refused(tmp_path: Path, name: str, axes: Any, message: str) -> None:
    with pytest.raises(RegistryError) as caught:
        load_registry(write(tmp_path, matrix(name, axes)))
    assert message in str(caught.value)
    assert f"models.{name}" in str(caught.value) or "models.m1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a mapping"),
        ("[]", "must be a mapping"),
        ("schema: 2\nmodels: {}", "schema: must be 1, got 2"),
        ("schema: 1\nmodels: []", "models: must be a mapping"),
        ("schema: 1\nmodels: {a: 1}", "models.a: must be a mapping"),
        ("schema: 1\nmodels: {}\nextra: 1", "extra: unknown key"),
        ("schema: 1\nmodels: {a: [}", "not valid YAML"),
        ("schema: 1\nmodels: {a: {}, a: {}}", "duplicate key 'a'"),
        ("schema: 1\nmodels: {a: {b: {c: 1, d: 2, 'c': 3}}}", "duplicate key 'c'"),
        ("schema: 1\nshared: [{1: a, 0x1: b}]\nmodels: {}", "duplicate key 1"),
        ("schema: 1\nmodels: {[1, 2]: 3}", "not valid YAML: while constructing a mapping"),
        ("schema: 1\nmodels: {{a: 1}: 3}", "found unhashable key"),
        ("schema: 1\nmodels: &all {a: *all}", "an anchor contains itself"),
        ("schema: 1\nmodels: &all {a: {<<: *all}}", "an anchor contains itself"),
        ("schema: 1\nshared: &s [[*s]]\nmodels: {}", "an anchor contains itself"),
        ("schema: 1\nmodels: {a: 2026-99-99}", "not valid YAML"),
        ("schema: 1\nmodels: {a: !!bool perhaps}", "not valid YAML"),
        ("schema: 1\nmodels: " + "[" * 5000, "nested too deeply"),
        ("schema: 1\nmodels: " + "{a: " * 5000, "nested too deeply"),
        (DEEP, "it stands for more than 200,000 values"),
        ("schema: 1\nmodels: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_file_that_is_not_a_registry_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(RegistryError) as caught:
        load_registry(path)
    assert message in str(caught.value)


def test_a_missing_file_is_a_registry_error(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot read"):
        load_registry(tmp_path / "none.yaml")
