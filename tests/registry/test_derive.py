"""A registry name is an architecture with defaults: other classes, labels, inputs and architecture keys."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError
from bcos_sdk.registry import architecture_keys, builtin_registry, derive, parse_settings

RESNET = builtin_registry()["resnet18"]


def test_other_classes_have_no_names_and_no_published_figures() -> None:
    spec = derive(RESNET, classes=7)
    assert (spec.architecture.classes, spec.class_names) == (7, None)
    assert spec.published.top1 is None
    assert spec.architecture.logit_bias == RESNET.architecture.logit_bias
    assert derive(RESNET) == RESNET
    assert derive(RESNET, classes=1000) == RESNET


def test_labels_and_input_can_be_changed() -> None:
    given = InputSpec.for_photographs((160, 160), 184)
    spec = derive(RESNET, classes=2, labels=["cat", "dog"], input_spec=given)
    assert (spec.class_names, spec.input) == (("cat", "dog"), given)
    assert derive(RESNET, labels=None).class_names is None


def test_any_key_of_the_architecture_can_be_set() -> None:
    spec = derive(RESNET, settings={"b": 1.5, "norm.eps": "1e-6", "blocks": [1, 1], "logit_bias": None, "classes": 5})
    config: Any = spec.architecture
    assert (config.b, config.norm.eps, config.blocks, config.classes) == (1.5, 1e-6, (1, 1), 5)
    assert config.norm.kind == "batch"
    assert config.resolved_logit_bias == pytest.approx(-math.log(4))


def test_a_mapping_changes_only_the_keys_that_it_has() -> None:
    given: Any = derive(RESNET, settings={"norm": {"kind": "layer"}, "norm.eps": 1e-3}).architecture
    before: Any = RESNET.architecture
    assert given.norm == before.norm.model_copy(update={"kind": "layer", "eps": 1e-3})
    assert not given.norm.bias


def test_every_key_of_every_family_is_known() -> None:
    for spec in {spec.family: spec for spec in builtin_registry().values()}.values():
        keys = set(architecture_keys(spec.architecture))
        assert set(type(spec.architecture).model_fields) - {"family"} <= keys
        assert "family" not in keys


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"settings": {"nrom.eps": 1}}, ["no key 'nrom.eps'", "norm.kind, norm.centred", "logit_bias, temperature"]),
        ({"settings": {"family": "vit"}}, ["no key 'family'"]),
        ({"settings": {"norm.eps": -1, "b": "two"}}, ["norm.eps: Input should be greater than 0", "b: Input should"]),
        ({"settings": {"norm": 3, "norm.eps": 1}}, ["norm.eps and norm cannot both be set"]),
        ({"settings": {"norm": {"esp": 1e-3}}}, ["norm.esp: Extra inputs are not permitted"]),
        ({"settings": {"b": True}}, ["b: Input should be a valid number", "(got 'true')"]),
        ({"settings": {"norm.eps": True}}, ["norm.eps: Input should be a valid number"]),
        ({"settings": {"blocks": [2, True]}}, ["blocks.1: Input should be a valid integer"]),
        ({"settings": {"channels": 3}}, ["'channels' must be 6"]),
        ({"classes": 0}, ["classes: Input should be greater than 0"]),
        ({"classes": 2, "labels": ["one"]}, ["has 2 classes, but 'labels' (own) has 1 names"]),
        ({"settings": {"temperature": float("nan")}}, ["temperature: Input should be a finite number"]),
    ],
)
def test_a_faulty_change_names_the_key(changes: dict[str, Any], messages: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        derive(RESNET, **changes)
    for message in messages:
        assert message in str(caught.value)
    assert "resnet18" in str(caught.value) or "norm" in str(caught.value)


def test_settings_are_parsed_as_yaml() -> None:
    texts = ["b=1.5", "norm.eps = 1e-6", "blocks=[3, 4]", "logit_bias=null"]
    texts += ["norm={kind: group, groups: 2}", "stem=cifar"]
    assert parse_settings(texts) == {
        "b": 1.5,
        "norm.eps": "1e-6",
        "blocks": [3, 4],
        "logit_bias": None,
        "norm": {"kind": "group", "groups": 2},
        "stem": "cifar",
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["b"], "'b' is not a setting"),
        (["=2"], "'=2' is not a setting"),
        (["b=1", "b=2"], "b is set twice"),
        (["b=[1"], "the value of b, '[1', is not valid YAML"),
        (["b={a: 1, a: 2}"], "duplicate key 'a'"),
        (["b=!!python/object:os.system x"], "is not valid YAML"),
    ],
)
def test_a_faulty_setting_is_an_input_error(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(texts)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("size", "resize"), [((224, 224), 256), ((160, 160), 183), ((32, 32), 37), ((64, 96), 110), ((1, 1), 1)]
)
def test_photographs_are_resized_in_the_proportion_of_the_published_models(size: tuple[int, int], resize: int) -> None:
    spec = InputSpec.for_photographs(size)
    assert (spec.size, spec.resize, spec.crop) == (size, resize, size)


def test_an_input_can_be_scaled_to_another_size() -> None:
    long = builtin_registry()["resnet50_long"].input
    assert long.scaled_to((112, 112)) == InputSpec(size=(112, 112), resize=116, crop=(112, 112))
    exact = builtin_registry()["cifar10_resnet20"].input
    assert exact.scaled_to((64, 64)) == InputSpec.exact((64, 64))
