"""Weights files good, nested, damaged, malicious and of another model."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import reference
from torch import Tensor, nn

from bcos_sdk.errors import CheckpointError, UnsafeCheckpointError, WeightsMismatchError
from bcos_sdk.models import build_model, load_model

NAME = "resnet18"

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def published() -> State:
    """A state dict as the published files hold it, made by the reference package."""
    state: State = reference.build(NAME).state_dict()
    return state


@pytest.fixture(scope="module")
def averaged(published: State) -> State:
    return {key: value + 1 for key, value in published.items()}


def prefixed(prefix: str, state: State) -> State:
    return {prefix + key: value for key, value in state.items()}


def holds(network: nn.Module, state: State) -> bool:
    loaded = network.state_dict()
    return loaded.keys() == state.keys() and all(torch.equal(loaded[key], state[key]) for key in state)


def saved(tmp_path: Path, contents: Any, name: str = "weights.pth") -> Path:
    path = tmp_path / name
    if path.suffix == ".safetensors":
        save_file(contents, path)
    else:
        torch.save(contents, path)
    return path


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_published_file_loads(tmp_path: Path, published: State, name: str) -> None:
    assert holds(load_model(NAME, weights=saved(tmp_path, published, name)), published)


def test_torchs_legacy_format_loads(tmp_path: Path, published: State) -> None:
    path = tmp_path / "old.pth"
    torch.save(published, path, _use_new_zipfile_serialization=False)
    assert holds(load_model(NAME, weights=path), published)


def lightning(model: State, ema: State | None = None) -> dict[str, Any]:
    """What a Lightning training run of the B-cos project leaves."""
    state = prefixed("model.", model)
    if ema is not None:
        state |= prefixed("ema.module.", ema) | {"ema.n_averaged": torch.tensor(5)}
    return {
        "epoch": 89,
        "global_step": 112590,
        "pytorch-lightning_version": "1.9.0",
        "state_dict": state,
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1e-3}]}],
        "hparams": {"dataset": "ImageNet"},
    }


def test_a_training_checkpoint_loads(tmp_path: Path, published: State) -> None:
    path = saved(tmp_path, lightning(published), "last.ckpt")
    assert holds(load_model(NAME, weights=path), published)


@pytest.mark.parametrize("prefer_ema", [True, False])
def test_of_two_copies_the_average_is_taken_unless_told_otherwise(
    tmp_path: Path, published: State, averaged: State, prefer_ema: bool
) -> None:
    path = saved(tmp_path, lightning(published, averaged), "last.ckpt")
    network = load_model(NAME, weights=path, prefer_ema=prefer_ema)
    assert holds(network, averaged if prefer_ema else published)


def test_an_average_in_a_dict_of_its_own_is_found(tmp_path: Path, published: State, averaged: State) -> None:
    path = saved(tmp_path, {"model": prefixed("module.", published), "model_ema": averaged})
    assert holds(load_model(NAME, weights=path), averaged)
    assert holds(load_model(NAME, weights=path, prefer_ema=False), published)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "network.backbone."])
def test_wrappers_leave_a_prefix_that_is_removed(tmp_path: Path, published: State, prefix: str) -> None:
    assert holds(load_model(NAME, weights=saved(tmp_path, prefixed(prefix, published))), published)


class Malicious:
    """Unpickled without care, this creates a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.proof,))


@pytest.mark.parametrize("raw_pickle", [True, False])
def test_a_malicious_pickle_is_refused_and_not_run(
    tmp_path: Path, published: State, raw_pickle: bool
) -> None:
    proof = tmp_path / "was-run"
    path = tmp_path / "weights.pth"
    if raw_pickle:
        path.write_bytes(pickle.dumps(Malicious(proof)))
    else:
        torch.save({**published, "extra": Malicious(proof)}, path)
    with pytest.raises(CheckpointError) as caught:
        load_model(NAME, weights=path)
    assert not proof.exists()
    assert raw_pickle or isinstance(caught.value, UnsafeCheckpointError)
    pickle.loads(pickle.dumps(Malicious(proof)))
    assert proof.exists(), "the attack must work where nobody guards against it, or this test proves nothing"


def test_a_pickled_model_is_refused_with_the_way_on(tmp_path: Path) -> None:
    path = saved(tmp_path, build_model("cifar10_resnet20"))
    with pytest.raises(UnsafeCheckpointError, match="save_file") as caught:
        load_model("cifar10_resnet20", weights=path)
    assert caught.value.code == "checkpoint_unsafe"


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("contents", [b"", b"not a checkpoint", b"\x80\x02}", b"PK\x03\x04", bytes(100)])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, suffix: str, contents: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(contents)
    with pytest.raises(CheckpointError) as caught:
        load_model(NAME, weights=path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_truncated_file_is_one_clear_error(tmp_path: Path, published: State) -> None:
    for name in ("weights.pth", "weights.safetensors"):
        path = saved(tmp_path, published, name)
        path.write_bytes(path.read_bytes()[:-1000])
        with pytest.raises(CheckpointError, match="cannot be read"):
            load_model(NAME, weights=path)


def test_a_path_that_is_no_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        load_model(NAME, weights=tmp_path / "none.pth")
    with pytest.raises(CheckpointError, match="is a folder"):
        load_model(NAME, weights=tmp_path)


@pytest.mark.parametrize("contents", [{}, {"epoch": 3}, [torch.zeros(2)]])
def test_a_checkpoint_without_weights_is_one_clear_error(tmp_path: Path, contents: Any) -> None:
    with pytest.raises(CheckpointError, match="holds"):
        load_model(NAME, weights=saved(tmp_path, contents))


def test_weights_of_another_model_name_the_one_they_fit(tmp_path: Path) -> None:
    path = saved(tmp_path, lightning(reference.build("resnet34").state_dict()), "last.ckpt")
    with pytest.raises(WeightsMismatchError) as caught:
        load_model(NAME, weights=path)
    assert caught.value.fits == ("resnet34",)
    assert not caught.value.missing
    assert "layer1.2.conv1.linear.weight" in caught.value.unexpected
    assert "They fit: resnet34." in str(caught.value)


def test_another_number_of_classes_is_a_shape_that_differs(tmp_path: Path, published: State) -> None:
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


def test_a_refused_file_leaves_the_network_as_it_was(tmp_path: Path, published: State) -> None:
    from bcos_sdk.weights import load_weights

    network = build_model(NAME)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    other = {**published, "fc.linear.weight": torch.zeros(10, 512, 1, 1)}
    with pytest.raises(WeightsMismatchError):
        load_weights(network, saved(tmp_path, other), name=NAME)
    assert holds(network, before)
