"""Reading weights files: damaged and malicious files are refused, and no code in them is run."""

from __future__ import annotations

import pickle
import tarfile
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import saved

from bcos_sdk.errors import CheckpointError, UnsafeCheckpointError
from bcos_sdk.models import build_model
from bcos_sdk.weights import read_checkpoint

STATE = {"linear.weight": torch.arange(600.0)}
PROTOCOLS = [0, 2, 3, 4, 5]


def refusal(path: Path) -> CheckpointError:
    """Return the error for a file. Message and traceback must not contain the advice of torch (`weights_only`)."""
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    text = "".join(traceback.format_exception(caught.value)) + str(caught.value)
    assert "weights_only" not in text
    assert str(path) in str(caught.value)
    assert caught.value.hint
    return caught.value


class Malicious:
    """An object that creates a file when it is unpickled without restrictions."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.proof,))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    proof = tmp_path / "was-run"
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Malicious(proof), protocol=protocol))
    error = refusal(path)
    assert not proof.exists()
    assert protocol < 2 or isinstance(error, UnsafeCheckpointError)
    pickle.loads(path.read_bytes())
    assert proof.exists(), "the attack must work without the restriction, or this test cannot fail"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_torch_file_is_refused_and_not_run(tmp_path: Path, protocol: int, zipped: bool) -> None:
    proof = tmp_path / "was-run"
    path = tmp_path / "weights.pth"
    contents = {**STATE, "extra": Malicious(proof)}
    torch.save(contents, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    assert isinstance(refusal(path), UnsafeCheckpointError)
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the attack must work without the restriction, or this test cannot fail"


def test_a_pickled_model_is_refused_with_a_hint_how_to_convert_it(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, build_model("cifar10_resnet20")))
    assert error.code == "checkpoint_unsafe"
    assert "bcos_sdk.models.resnet.ResNet" in str(error)
    assert "save_file" in str(error)


def test_old_versions_of_torch_do_not_read_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, STATE)
    tensors_only = saved(tmp_path, STATE, "weights.safetensors")
    for version in ("2.0.1", "2.5.1+cu121"):
        monkeypatch.setattr(torch, "__version__", version)
        error = refusal(path)
        assert isinstance(error, UnsafeCheckpointError)
        assert version in str(error)
        assert "CVE-2025-32434" in str(error)
        assert "torch>=2.6" in str(error)
        assert "safetensors" in str(error)
        assert read_checkpoint(tensors_only).keys() == STATE.keys()
    for version in ("2.6.0", "2.10.0+cpu", "3.0.0a0"):
        monkeypatch.setattr(torch, "__version__", version)
        assert read_checkpoint(path).keys() == STATE.keys()


def test_a_harmless_file_of_a_later_protocol_is_read_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(STATE, path, pickle_protocol=3)
    assert torch.equal(read_checkpoint(path)["linear.weight"], STATE["linear.weight"])


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("contents", [b"", b"not a checkpoint", b"\x80\x02}", b"PK\x03\x04", bytes(100)])
def test_a_damaged_file_is_a_checkpoint_error(tmp_path: Path, suffix: str, contents: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(contents)
    assert "cannot read" in str(refusal(path))


def test_other_formats_of_torch_are_a_checkpoint_error(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "tar.pth", "w") as archive:
        archive.add(saved(tmp_path, STATE))
    assert "cannot read" in str(refusal(tmp_path / "tar.pth"))


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_truncated_file_is_a_checkpoint_error(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, STATE, name)
    path.write_bytes(path.read_bytes()[:-1000])
    assert "cannot read" in str(refusal(path))


def test_a_path_that_is_not_a_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    assert "does not exist" in str(refusal(tmp_path / "none.pth"))
    assert "is a folder" in str(refusal(tmp_path))
