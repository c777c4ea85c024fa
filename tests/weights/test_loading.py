"""Loading weights that are the whole file, a part of it, or those of another model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import reference
from support.checkpoints import State, holds, lightning, prefixed, saved
from torch import Tensor

from bcos_sdk.errors import CheckpointError, WeightsMismatchError
from bcos_sdk.models import build_model
from bcos_sdk.weights import load_model, load_weights

NAME = "resnet18"


@pytest.fixture(scope="module")
def published() -> State:
    """A state dict in the layout of the published files, made by the reference package."""
    state: State = reference.build(NAME).state_dict()
    return state


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_published_file_loads(tmp_path: Path, published: State, name: str) -> None:
    assert holds(load_model(NAME, weights=saved(tmp_path, published, name)), published)


def test_torchs_legacy_format_loads(tmp_path: Path, published: State) -> None:
    path = tmp_path / "old.pth"
    torch.save(published, path, _use_new_zipfile_serialization=False)
    assert holds(load_model(NAME, weights=path), published)


def test_a_training_checkpoint_loads(tmp_path: Path, published: State) -> None:
    path = saved(tmp_path, lightning(published), "last.ckpt")
    assert holds(load_model(NAME, weights=path), published)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "network.backbone."])
def test_prefixes_of_wrappers_are_removed(tmp_path: Path, published: State, prefix: str) -> None:
    assert holds(load_model(NAME, weights=saved(tmp_path, prefixed(prefix, published))), published)


@pytest.mark.parametrize(
    ("contents", "message"),
    [({}, "contains no tensors"), ({"epoch": 3}, "contains no tensors"), ([torch.zeros(2)], "holds a list")],
)
def test_a_checkpoint_without_weights_is_a_checkpoint_error(tmp_path: Path, contents: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_model(NAME, weights=saved(tmp_path, contents))


def test_weights_of_another_model_are_refused_with_the_name_of_that_model(tmp_path: Path) -> None:
    path = saved(tmp_path, lightning(reference.build("resnet34").state_dict()), "last.ckpt")
    with pytest.raises(WeightsMismatchError) as caught:
        load_model(NAME, weights=path)
    assert caught.value.fits == ("resnet34",)
    assert not caught.value.missing
    assert "layer1.2.conv1.linear.weight" in caught.value.unexpected
    assert "The weights fit resnet34." in str(caught.value)


def test_another_number_of_classes_is_a_wrong_shape(tmp_path: Path, published: State) -> None:
    other = {**published, "fc.linear.weight": torch.zeros(10, 512, 1, 1)}
    with pytest.raises(WeightsMismatchError) as caught:
        load_model(NAME, weights=saved(tmp_path, other))
    assert caught.value.misshapen == ("fc.linear.weight (file [10, 512, 1, 1], model [1000, 512, 1, 1])",)
    assert caught.value.missing == caught.value.unexpected == caught.value.fits == ()


def test_a_missing_and_a_surplus_key_are_both_named(tmp_path: Path, published: State) -> None:
    other = {key: value for key, value in published.items() if key != "conv1.linear.weight"}
    other["conv1.linear.bias"] = torch.zeros(64)
    with pytest.raises(WeightsMismatchError) as caught:
        load_model(NAME, weights=saved(tmp_path, lightning(other), "last.ckpt"))
    assert caught.value.missing == ("conv1.linear.weight",)
    assert caught.value.unexpected == ("conv1.linear.bias",)


def test_if_no_key_fits_the_error_describes_the_largest_set_of_tensors(tmp_path: Path) -> None:
    model = {f"encoder.{index}": torch.zeros(2) for index in range(9)}
    contents = {"buffers": {"step": torch.zeros(2)}, "model": model, "optimizer": {"momentum": torch.zeros(2)}}
    with pytest.raises(WeightsMismatchError) as caught:
        load_model(NAME, weights=saved(tmp_path, contents))
    assert caught.value.unexpected == tuple(model)


def test_integer_tensors_are_not_weights(tmp_path: Path, published: State) -> None:
    other = {**published, "fc.linear.weight": published["fc.linear.weight"].to(torch.int8)}
    with pytest.raises(WeightsMismatchError) as caught:
        load_model(NAME, weights=saved(tmp_path, other))
    assert caught.value.misshapen == ("fc.linear.weight (file int8, model float32)",)


def test_weights_of_other_precision_are_converted(tmp_path: Path, published: State) -> None:
    half = {key: value.half() if value.is_floating_point() else value for key, value in published.items()}
    loaded = load_model(NAME, weights=saved(tmp_path, half)).state_dict()
    assert all(torch.equal(loaded[key], half[key].to(loaded[key].dtype)) for key in half)


def nan(weight: Tensor) -> Tensor:
    return torch.full_like(weight, torch.nan)


def too_large(weight: Tensor) -> Tensor:
    return torch.full_like(weight, 1e39, dtype=torch.float64)


def sparse(weight: Tensor) -> Tensor:
    return weight.to_sparse()


def meta(weight: Tensor) -> Tensor:
    return weight.to("meta")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (nan, "not finite, first in state_dict.model.bn1.weight"),
        (too_large, "not finite, first in state_dict.model.bn1.weight"),
        (sparse, "cannot be copied: state_dict.model.bn1.weight"),
        (meta, "cannot be copied: state_dict.model.bn1.weight"),
    ],
)
def test_tensors_that_are_not_finite_or_not_dense_are_refused(
    tmp_path: Path, published: State, spoil: Callable[[Tensor], Tensor], message: str
) -> None:
    network = build_model(NAME)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    other = {**published, "bn1.weight": spoil(published["bn1.weight"])}
    with pytest.raises(CheckpointError) as caught:
        load_weights(network, saved(tmp_path, lightning(other), "last.ckpt"), name=NAME)
    assert message in str(caught.value)
    assert holds(network, before)


def test_a_refused_file_leaves_the_network_unchanged(tmp_path: Path, published: State) -> None:
    network = build_model(NAME)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    other = {**published, "fc.linear.weight": torch.zeros(10, 512, 1, 1)}
    with pytest.raises(WeightsMismatchError):
        load_weights(network, saved(tmp_path, other), name=NAME)
    assert holds(network, before)
