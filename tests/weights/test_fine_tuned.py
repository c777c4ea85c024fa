"""Fine-tuned models: the classes and labels of a checkpoint, and the errors for one that does not fit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import reference
from support.checkpoints import State, holds, lightning, prefixed, saved

from bcos_sdk.errors import InputError, WeightsMismatchError
from bcos_sdk.models import build_model
from bcos_sdk.registry import ModelSpec, builtin_registry, derive
from bcos_sdk.weights import load_fine_tuned, load_model

NAMES = [f"flower {index}" for index in range(7)]
SMALL = "cifar10_resnet20_bnu"

# A small member of every family; MaxOut has two units per class.
FAMILIES: dict[str, dict[str, Any]] = {
    "resnet18": {"blocks": [1, 1], "width": 8},
    "cifar10_resnet20_bnu": {},
    "densenet121": {"blocks": [1], "growth": 4, "stem_width": 8, "max_out": 3},
    "vgg11_bnu": {"stages": [[8]], "hidden": 8},
    "convnext_tiny": {"widths": [8, 16], "blocks": [1, 1]},
    "simple_vit_ti_patch16_224": {"dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16},
    "cifar10_plain9_b2": {"widths": [8, 8], "strides": [1, 2]},
}


@pytest.fixture(scope="module")
def public() -> Any:
    torch.manual_seed(0)
    return reference.fine_tuned_resnet18(7)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("classes", [1, 2, 7, 1000])
def test_the_number_of_classes_is_read_from_the_classifier_of_every_family(
    tmp_path: Path, name: str, classes: int
) -> None:
    spec = derive(builtin_registry()[name], settings=FAMILIES[name])
    state = build_model(derive(spec, classes=classes)).state_dict()
    tuned = load_fine_tuned(spec, saved(tmp_path, state))
    assert tuned.spec.architecture.classes == classes
    assert holds(tuned.network, state)


@pytest.mark.parametrize("contents", ["state dict", "lightning"])
def test_a_network_of_the_public_package_gives_its_own_logits(tmp_path: Path, public: Any, contents: str) -> None:
    state = public.state_dict()
    path = saved(tmp_path, state if contents == "state dict" else lightning(state), "mine.ckpt")
    tuned = load_fine_tuned("resnet18", path)
    rgb = torch.rand(2, 3, 64, 64)
    images = torch.cat([rgb, 1 - rgb], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(tuned.network(images), public(images), rtol=1e-5, atol=1e-5)
    assert tuned.spec.class_names is None
    assert tuned.labels_from == "none"
    assert not tuned.network.training


@pytest.mark.parametrize("inner", [True, False])
def test_a_transformer_may_be_saved_with_or_without_its_logit_layer(tmp_path: Path, inner: bool) -> None:
    """In the public package it is the first part of a Sequential whose second part is the logit layer."""
    public = reference.build("simple_vit_ti_patch16_224", num_classes=7).eval()
    path = saved(tmp_path, prefixed("model.", (public[0] if inner else public).state_dict()))
    tuned = load_fine_tuned("simple_vit_ti_patch16_224", path)
    rgb = torch.rand(1, 3, 64, 64)
    images = torch.cat([rgb, 1 - rgb], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(tuned.network(images), public(images), rtol=1e-5, atol=1e-5)


def small_state(classes: int = 7) -> State:
    return build_model(derive(builtin_registry()[SMALL], classes=classes)).state_dict()


WRAPPED: dict[str, Callable[[State], dict[str, Any]]] = {
    "state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "model": lambda state: {"model": state, "optimizer": {"state": {}}, "args": {"lr": 0.1}},
    "model.state_dict": lambda state: {"model": {"state_dict": state}},
    "lightning": lambda state: {"state_dict": prefixed("model.", state), "pytorch-lightning_version": "2.1"},
    "lightning, compiled": lambda state: {"state_dict": prefixed("model._orig_mod.", state)},
    "data parallel": lambda state: prefixed("module.", state),
    "compiled": lambda state: prefixed("_orig_mod.", state),
    "compiled, then data parallel": lambda state: {"model": prefixed("module._orig_mod.", state)},
    "data parallel, then compiled": lambda state: prefixed("_orig_mod.module.", state),
    "a compiled part": lambda state: {key.replace("layer1.", "layer1._orig_mod."): state[key] for key in state},
    "part of another module": lambda state: prefixed("net.backbone.", state) | {"temperature": torch.ones(())},
}


@pytest.mark.parametrize("layout", WRAPPED)
def test_the_layouts_of_training_tools_are_understood(tmp_path: Path, layout: str) -> None:
    state = small_state()
    tuned = load_fine_tuned(SMALL, saved(tmp_path, WRAPPED[layout](state)))
    assert holds(tuned.network, state)


@pytest.mark.parametrize("average", ["model_ema", "state_dict_ema"])
def test_the_average_of_timm_is_preferred(tmp_path: Path, average: str) -> None:
    state = small_state()
    ema = {key: value + 1 for key, value in state.items()}
    path = saved(tmp_path, {"state_dict": state, average: ema, "args": argparse.Namespace(model="x")})
    assert holds(load_fine_tuned(SMALL, path).network, ema)
    assert holds(load_fine_tuned(SMALL, path, prefer_ema=False).network, state)
    assert load_fine_tuned(SMALL, path).place == f"'{average}'"


def test_a_python_user_gives_the_number_of_classes(tmp_path: Path) -> None:
    state = small_state()
    assert holds(load_model(SMALL, weights=saved(tmp_path, state), classes=7), state)


def test_another_number_of_classes_is_recognised_as_a_fine_tuned_model(tmp_path: Path, public: Any) -> None:
    path = saved(tmp_path, public.state_dict())
    with pytest.raises(WeightsMismatchError) as caught:
        load_model("resnet18", weights=path)
    text = str(caught.value)
    assert "This looks like a fine-tuned resnet18 with 7 classes" in text
    assert f"bcos-sdk export resnet18 --weights {path}" in text
    assert f"load_model('resnet18', weights='{path}', classes=7)" in text
    assert "7 classes (its classifier fc.linear.weight is [7, 512, 1, 1]), but 1000 were asked for" in text
    with pytest.raises(WeightsMismatchError, match=r"but 5 were asked for \(--classes, or classes=…\)"):
        load_fine_tuned("resnet18", path, classes=5)


def test_a_fine_tuned_model_of_another_architecture_is_named(tmp_path: Path, public: Any) -> None:
    with pytest.raises(WeightsMismatchError) as caught:
        load_fine_tuned("resnet34", saved(tmp_path, public.state_dict()))
    assert "This looks like a fine-tuned resnet18 with 7 classes" in str(caught.value)
    assert caught.value.fits == ()
    assert "layer1.2.conv1.linear.weight" in caught.value.missing
    assert not caught.value.misshapen


def test_two_networks_in_one_file_need_a_choice(tmp_path: Path) -> None:
    student, teacher = small_state(7), small_state(3)
    path = saved(tmp_path, {"student": student, "teacher": teacher})
    with pytest.raises(InputError, match="with 3 and 7 classes"):
        load_fine_tuned(SMALL, path)
    assert holds(load_fine_tuned(SMALL, path, classes=7).network, student)
    assert holds(load_fine_tuned(SMALL, path, classes=3).network, teacher)


@pytest.mark.parametrize(
    ("extra", "place"),
    [
        ({"labels": NAMES}, "labels"),
        ({"classes": tuple(NAMES)}, "classes"),
        ({"hyper_parameters": {"class_names": NAMES, "lr": 1}}, "hyper_parameters.class_names"),
        ({"meta": {"class_to_idx": {name: index for index, name in enumerate(NAMES)}}}, "meta.class_to_idx"),
        ({"config": {"id2label": dict(enumerate(NAMES))}}, "config.id2label"),
        ({"idx_to_class": {str(index): name for index, name in enumerate(NAMES)}}, "idx_to_class"),
        ({"args": argparse.Namespace(class_names=NAMES)}, "args.class_names"),
        ({"labels": NAMES[:3], "class_names": NAMES}, "class_names"),
    ],
)
def test_labels_are_found_in_the_checkpoint(tmp_path: Path, extra: dict[str, Any], place: str) -> None:
    tuned = load_fine_tuned(SMALL, saved(tmp_path, {"state_dict": small_state(), **extra}))
    assert tuned.spec.class_names == tuple(NAMES)
    assert (tuned.labels_from, tuned.note) == ("checkpoint", place)


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({"format": "pt", "labels": json.dumps(NAMES)}, "__metadata__.labels"),
        ({"class_to_idx": json.dumps({name: index for index, name in enumerate(NAMES)})}, "__metadata__.class_to_idx"),
        ({"config": json.dumps({"id2label": dict(enumerate(NAMES))})}, "__metadata__.config.id2label"),
        ({"labels": ", ".join(NAMES)}, None),
        ({"labels": "[" * 100_000}, None),
        ({"format": "pt"}, None),
    ],
)
def test_labels_are_found_in_the_metadata_of_safetensors(
    tmp_path: Path, metadata: dict[str, str], place: str | None
) -> None:
    state = small_state()
    save_file(state, tmp_path / "weights.safetensors", metadata=metadata)
    tuned = load_fine_tuned(SMALL, tmp_path / "weights.safetensors")
    assert holds(tuned.network, state)
    assert tuned.spec.class_names == (tuple(NAMES) if place else None)
    assert tuned.note == place


@pytest.mark.parametrize(
    ("extra", "note"),
    [
        ({"labels": NAMES[:3]}, "the names in 'labels' were not used: 3 names for 7 classes"),
        ({"labels": [*NAMES[:6], NAMES[0]]}, "the names in 'labels' were not used: a name occurs twice"),
        ({"labels": [*NAMES[:6], " "]}, "the names in 'labels' were not used: a name is empty"),
        ({"meta": {"class_to_idx": {"a": 0, "b": 1}}}, "the names in 'meta.class_to_idx' were not used: 2 names for"),
        ({"classes": 7, "labels": torch.arange(7), "hyper_parameters": None}, None),
        ({"class_to_idx": {"a": 1, "b": 1}}, None),
        ({"id2label": {0: "a", 5: "b"}}, None),
    ],
)
def test_labels_that_do_not_name_each_class_are_not_used(
    tmp_path: Path, extra: dict[str, Any], note: str | None
) -> None:
    tuned = load_fine_tuned(SMALL, saved(tmp_path, {"state_dict": small_state(), **extra}))
    assert tuned.spec.class_names is None
    assert tuned.labels_from == "none"
    assert (tuned.note or "").startswith(note or "")
    assert (tuned.note is None) == (note is None)


def test_given_labels_come_first_and_must_be_as_many_as_the_classes(tmp_path: Path) -> None:
    path = saved(tmp_path, {"state_dict": small_state(), "labels": [f"other {name}" for name in NAMES]})
    tuned = load_fine_tuned(SMALL, path, labels=NAMES)
    assert (tuned.spec.class_names, tuned.labels_from) == (tuple(NAMES), "given")
    with pytest.raises(InputError, match=r"3 labels were given, but .* has 7 classes"):
        load_fine_tuned(SMALL, path, labels=NAMES[:3])


def test_the_labels_of_the_registry_are_kept_for_the_same_number_of_classes(tmp_path: Path) -> None:
    tuned = load_fine_tuned(SMALL, saved(tmp_path, small_state(10)))
    assert tuned.spec.labels == "cifar10"
    assert tuned.labels_from == "registry"


def test_the_logit_bias_stays_that_of_the_registry_as_in_the_public_package(public: Any, tmp_path: Path) -> None:
    (bias,) = {part.logit_bias for part in public.modules() if isinstance(part, reference.LogitLayer)}
    tuned = load_fine_tuned("resnet18", saved(tmp_path, public.state_dict()))
    assert tuned.spec.architecture.resolved_logit_bias == pytest.approx(bias, abs=1e-15)


def test_a_derived_model_keeps_its_settings(tmp_path: Path) -> None:
    spec: ModelSpec = derive(builtin_registry()[SMALL], settings={"temperature": 5, "logit_bias": 0, "norm.eps": 1e-3})
    tuned = load_fine_tuned(spec, saved(tmp_path, small_state()))
    layer: Any = tuned.network.get_submodule("logits")
    norm: Any = tuned.network.get_submodule("bn1")
    assert (layer.bias, layer.temperature, norm.eps) == (0, 5, 1e-3)
