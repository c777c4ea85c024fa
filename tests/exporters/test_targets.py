"""Targets: classes, ranks, the mean, and differences of targets."""

from __future__ import annotations

import pytest
import torch
from support.compiling import run_in_torch, run_onnx
from support.explaining import random_image
from torch import Tensor

from bcos_sdk.exporters.compiler import Compiled, compile_module
from bcos_sdk.exporters.program import Program
from bcos_sdk.models import build_model, calibrate

CLASSES = 10
MEAN = CLASSES


@pytest.fixture(scope="module")
def x() -> Tensor:
    torch.manual_seed(0)
    return random_image(4, 32)


@pytest.fixture(scope="module")
def compiled(x: Tensor) -> Compiled:
    module = build_model("cifar10_resnet20_bnu").double()
    calibrate(module, x)
    return compile_module(module, (32, 32))


@pytest.fixture(params=["grid", "rows"])
def program(request: pytest.FixtureRequest, compiled: Compiled) -> Program:
    return compiled.explain if request.param == "grid" else compiled.explain_rows


def test_ranks_are_resolved_in_the_graph(program: Program, x: Tensor) -> None:
    ranks = torch.tensor([[-1, -2, -CLASSES]] * len(x))
    got = run_in_torch(program, x, ranks)
    order = got["logits"].argsort(dim=1, descending=True)
    assert torch.equal(got["classes"], order[:, [0, 1, CLASSES - 1]])
    assert torch.equal(torch.from_numpy(run_onnx(program, x, ranks)["classes"]), got["classes"])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_of_targets_gives_the_same_rows(program: Program, x: Tensor, count: int) -> None:
    targets = torch.arange(count).expand(len(x), -1).contiguous()
    together = run_in_torch(program, x, targets)
    for k in range(count):
        alone = run_in_torch(program, x[1:2], targets[1:2, k : k + 1])
        torch.testing.assert_close(together["weights"][1:2, k : k + 1], alone["weights"], rtol=1e-10, atol=1e-13)
    in_onnx = torch.from_numpy(run_onnx(program, x, targets)["weights"]).double()
    assert (in_onnx - together["weights"]).norm() < 1e-5 * together["weights"].norm()


def test_the_mean_target_explains_the_mean_logit(program: Program, x: Tensor) -> None:
    every = torch.arange(CLASSES + 1).expand(len(x), -1).contiguous()
    got = run_in_torch(program, x, every)
    torch.testing.assert_close(got["weights"][:, MEAN], got["weights"][:, :MEAN].mean(1), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(got["bias"][:, MEAN], got["bias"][:, :MEAN].mean(1), rtol=1e-9, atol=1e-12)
    total = got["contributions"][:, MEAN].sum((1, 2)) + got["bias"][:, MEAN]
    torch.testing.assert_close(total, got["logits"].mean(1), rtol=1e-9, atol=1e-12)


def test_the_difference_of_two_explanations_explains_the_difference(program: Program, x: Tensor) -> None:
    got = run_in_torch(program, x, torch.tensor([[3, 5]] * len(x)))
    delta = got["contributions"][:, 0] - got["contributions"][:, 1]
    bias = got["bias"][:, 0] - got["bias"][:, 1]
    expected = got["logits"][:, 3] - got["logits"][:, 5]
    torch.testing.assert_close(delta.sum((1, 2)) + bias, expected, rtol=1e-9, atol=1e-12)
