"""Sums of many float32 values in ONNX Runtime stay close to float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.compiling import run_onnx
from support.operator_cases import Flat
from torch import Tensor, nn

from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.models.layers import LogitLayer

SIZE = (47, 53)

SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum of all": lambda x: x.sum((1, 2, 3))[:, None],
    "sum of one axis": lambda x: x.flatten(1).sum(1, keepdim=True),
    "sum of the middle axis": lambda x: x.permute(0, 2, 3, 1).flatten(1, 2).sum(1),
    "mean of one axis": lambda x: x.flatten(2).mean(2),
    "mean of two axes": lambda x: x.mean((2, 3), keepdim=True),
    "square of the side": lambda x: x[:, :, :32, :32].flatten(2).sum(2, keepdim=True),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_long_sum(name: str) -> None:
    """Values of one sign and similar size are the worst case: each step of a long sum rounds in the same way."""
    module = Flat(SUMS[name]).double().eval()
    x = (0.7 + 0.01 * torch.rand(2, 4, *SIZE, dtype=torch.float64)).float().double()
    compiled = compile_module(module, SIZE, channels=4)
    truth = module(x)
    got = torch.from_numpy(run_onnx(compiled.predict, x)["logits"]).double()
    assert float(((got - truth) / truth).abs().max()) < 2e-7


@pytest.mark.parametrize("classes", [4000, 21841])
def test_the_bias_of_the_mean_of_many_classes(classes: int) -> None:
    head = nn.Linear(6 * 16, classes, bias=False)
    compiled = compile_module(nn.Sequential(nn.Flatten(), head, LogitLayer(-7.0)).eval(), (4, 4))
    x, mean = torch.rand(2, 6, 4, 4), torch.full((2, 1), classes)
    for program in (compiled.explain, compiled.explain_rows):
        bias = run_onnx(program, x, mean)["bias"]
        assert abs(bias / -7 - 1).max() < 2e-7


@pytest.mark.parametrize("side", [32, 56])
def test_a_centred_norm_of_many_values(side: int) -> None:
    """Its mean is subtracted, so an error of the mean is large beside what remains."""

    def norm(x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x.flatten(2), dim=2, correction=0, keepdim=True)
        y: Tensor = (x.flatten(2) - mean) / (variance + 1e-5).sqrt().detach()
        return y[:, :, ::97]

    module = Flat(norm).double().eval()
    x = (0.7 + 0.01 * torch.rand(2, 4, side, side, dtype=torch.float64)).float().double()
    truth = module(x)
    compiled = compile_module(module, (side, side), channels=4)
    got = torch.from_numpy(run_onnx(compiled.predict, x)["logits"]).double()
    assert float((got - truth).norm() / truth.norm()) < 1.5e-5
