"""The parts of the trainings in demo/: the split, the mixed targets, the norms, the schedule."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
from support.export_extra import torch

from bcos_sdk.models.layers import make_norm
from bcos_sdk.registry.architectures import NormConfig

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))

import pets
import training


def test_held_out_photographs_are_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "trainval.txt").write_text("beagle_1 5 2 1\nAbyssinian_9 1 1 1\n")
    (tmp_path / "test.txt").write_text("".join(f"pug_{index} 9 2 3\n" for index in range(7)))
    train, held_out = pets.split_names(tmp_path)
    assert held_out == ["pug_0", "pug_3", "pug_6"]
    assert sorted([*train, *held_out]) == ["Abyssinian_9", "beagle_1", *(f"pug_{index}" for index in range(7))]
    assert pets.breeds(["pug_0", "beagle_1", "Abyssinian_9"]) == ["Abyssinian cat", "beagle dog", "pug dog"]


def test_mixed_targets_are_the_shares_of_the_area() -> None:
    chance = np.random.default_rng(0)
    for _ in range(20):
        rgb = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 20, 20).clone()
        mixed, target = pets.cut_and_paste(rgb, torch.eye(4), chance)
        shares = torch.stack([(mixed[:, 0] == index).float().mean((1, 2)) for index in range(4)], dim=1)
        torch.testing.assert_close(target, shares)


def test_norms_by_moments_are_the_norms_of_the_package() -> None:
    torch.manual_seed(0)
    norm = make_norm(5, NormConfig(kind="batch", centred=False, bias=False)).train()
    other = copy.deepcopy(norm)
    training.use_moments_in_norms(torch.nn.Sequential(other))
    x = torch.randn(4, 5, 6, 6) + 0.5
    first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
    results = norm(first), other(second)
    torch.testing.assert_close(*results)
    for result in results:
        (result**3).sum().backward()
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm.state_dict(), other.state_dict())


def test_the_learning_rate_rises_and_falls_to_zero() -> None:
    rates = [training.learning_rate(progress, 2.0, 0.1) for progress in (0, 0.05, 0.1, 0.55, 1)]
    assert rates == pytest.approx([0, 1, 2, 1, 0], abs=1e-9)
