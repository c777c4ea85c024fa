"""Every rule of the transposition, alone in a small module, against the module's Jacobian."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compiling import check_against_jacobian
from torch import Tensor, nn

from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.operators import TRANSPOSES, pick_every

Function = Callable[[Tensor], Tensor]


class Flat(nn.Module):
    """The function, with its result flattened into logits."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("precision", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x).flatten(1)


def image(channels: int = 4, height: int = 5, width: int = 6) -> Tensor:
    return torch.randn(2, channels, height, width, dtype=torch.float64)


def constant(*shape: int) -> Tensor:
    return torch.arange(1, prod(shape) + 1, dtype=torch.float64).sin().view(shape)


CASES: dict[str, Function] = {
    "add live": lambda x: x + 2 * x,
    "add constant": lambda x: x + constant(4, 1, 1),
    "add number": lambda x: x + 3.5,
    "add frozen": lambda x: x + x.detach().sin(),
    "add broadcast live": lambda x: x + x.mean((2, 3), keepdim=True),
    "sub live": lambda x: 3 * x - x.mean(1, keepdim=True),
    "sub from constant": lambda x: constant(4, 5, 6) - x,
    "neg": lambda x: -x,
    "mul constant": lambda x: x * constant(4, 5, 6),
    "mul frozen": lambda x: x * x.abs().detach(),
    "mul frozen smaller": lambda x: x * x.square().sum(1, keepdim=True).detach(),
    "mul frozen larger": lambda x: x.mean((2, 3), keepdim=True) * x.abs().detach(),
    "mul frozen from the left": lambda x: x.detach().abs() * x,
    "div constant": lambda x: x / 7,
    "div frozen": lambda x: x / (x.square().sum(1, keepdim=True) + 1).sqrt().detach(),
    "linear": lambda x: F.linear(x, constant(3, 6)),
    "linear with bias": lambda x: F.linear(x, constant(3, 6), constant(3)),
    "linear of vectors": lambda x: F.linear(x.flatten(1), constant(3, 120), constant(3)),
    "matmul live left": lambda x: x @ constant(6, 3),
    "matmul live right": lambda x: constant(3, 5) @ x,
    "matmul frozen right": lambda x: x @ x.detach().transpose(-1, -2),
    "matmul frozen left": lambda x: x.detach().transpose(-1, -2).softmax(-1) @ x,
    "sum": lambda x: x.sum((1, 3)),
    "sum keepdim": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean((2, 3)),
    "mean keepdim": lambda x: x.mean(1, keepdim=True),
    "var_mean": lambda x: x - torch.var_mean(x, dim=1, keepdim=True)[1],
    "adaptive average pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "view": lambda x: x.view(-1, 4 * 5, 6) * constant(20, 6),
    "reshape": lambda x: x.reshape(x.shape[0], 2, 2, 30) * constant(2, 2, 30),
    "squeeze and unsqueeze": lambda x: x.unsqueeze(2).squeeze(2) * 2,
    "permute": lambda x: x.permute(0, 2, 3, 1) * constant(5, 6, 4),
    "transpose": lambda x: x.transpose(-1, 1) * constant(6, 5, 4),
    "expand": lambda x: x.mean(1, keepdim=True).expand(-1, 3, -1, -1) * constant(3, 5, 6),
    "cat": lambda x: torch.cat([x, 2 * x, x.detach().abs()], dim=1) * constant(12, 5, 6),
    "chunk": lambda x: x.chunk(3, dim=-1)[1] * 2 + x.chunk(3, dim=-1)[2],
    "split": lambda x: torch.split(x, [1, 3], dim=1)[1],
    "slice": lambda x: x[:, 1:3, :, 2:],
    "slice with step": lambda x: x[:, :, 1::2, ::3],
    "pad": lambda x: F.pad(x, (1, 2, 0, 3)) * constant(4, 8, 9),
    "negative pad": lambda x: F.pad(x, (-1, 0, 1, -2)),
    "relu": F.relu,
    "relu at zero": lambda x: F.relu(x * 0.0),
    "maximum": lambda x: torch.unflatten(x, 1, (2, 2)).max(dim=2).values,
    "maximum keepdim": lambda x: x.max(dim=3, keepdim=True).values,
    "clone and contiguous": lambda x: x.clone().contiguous() * 2,
    "dropout in eval mode": lambda x: F.dropout(x, 0.5, training=False) * 2,
    "in place": lambda x: (x * 2).add_(1.0),
    "number minus live": lambda x: 1 - x,
    "sum with a factor": lambda x: torch.add(x, x.detach().sin(), alpha=2) + torch.sub(x, 3 * x, alpha=0.5),
    "select": lambda x: x[:, 1] * constant(5, 6) + x[:, -1],
    "batched matrix product": lambda x: torch.bmm(x.flatten(2), x.detach().flatten(2).transpose(1, 2)),
    "matmul broadcast over heads": lambda x: x[:, :1] @ constant(3, 6, 2),
    "unit window with a stride": lambda x: F.avg_pool2d(x, 1, 2),
    "boolean mask": lambda x: x * (constant(4, 1, 1) > 0),
    "padded frozen factor": lambda x: x * F.pad(x.detach(), (1, 1, 1, 1), mode="replicate")[:, :, 1:-1, 1:-1],
    "1-norm of a frozen value": lambda x: x / x.detach().norm(p=1, dim=1, keepdim=True),
    "place of the largest": lambda x: x * x.detach().max(dim=1, keepdim=True).indices,
    "frozen per image": lambda x: x * (x.detach().mean((1, 2, 3)) * 0.5).view(-1, 1, 1, 1),
    "batch norm": lambda x: F.batch_norm(x, constant(4), constant(4).exp(), constant(4), constant(4) + 1),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    check_against_jacobian(Flat(CASES[name]), image())


windows = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_convolutions_of_any_shape(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 3))
    kernel, stride, dilation = data.draw(windows), data.draw(windows), data.draw(windows)
    padding = (data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    inputs, outputs = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    size = [
        max(d * (k - 1) + 1 - 2 * p, 1) + data.draw(st.integers(0, 4))
        for d, k, p in zip(dilation, kernel, padding, strict=True)
    ]
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=data.draw(st.booleans()))
    check_against_jacobian(nn.Sequential(conv, nn.Flatten()), image(inputs, *size))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_pools_of_any_shape(data: st.DataObject) -> None:
    kernel, stride = data.draw(windows), data.draw(windows)
    padding = (data.draw(st.integers(0, kernel[0] // 2)), data.draw(st.integers(0, kernel[1] // 2)))
    size = [k + data.draw(st.integers(0, 4)) for k in kernel]
    pool: Any = data.draw(st.sampled_from([nn.AvgPool2d, nn.MaxPool2d]))
    check_against_jacobian(Flat(pool(kernel, stride, padding)), image(2, *size))


def test_equal_values_have_one_winner() -> None:
    """Where several are largest, autograd's first one takes all, and so does ours."""
    x = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    check_against_jacobian(Flat(nn.MaxPool2d(2)), x)
    check_against_jacobian(Flat(lambda x: x.max(dim=1).values), x)


def test_parameters_whose_names_look_alike_stay_apart() -> None:
    class Alike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.ParameterDict({"scale": torch.rand(4, 1, 1)})
            self.mix_scale = nn.Parameter(torch.rand(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x * self.mix["scale"], x * self.mix_scale], dim=1).flatten(1)

    check_against_jacobian(Alike(), image())


def test_every_rule_is_tried() -> None:
    """A rule without a case above would be a claim without a proof."""
    tried = {pick_every}  # what a simplification puts in the place of a unit window
    modules = [Flat(case) for case in CASES.values()]
    modules += [Flat(layer) for layer in (nn.Conv2d(4, 2, 3), nn.AvgPool2d(2), nn.MaxPool2d(2))]
    for module in modules:
        program = capture(module.double().eval(), (5, 6), channels=4)
        tried |= {node.target for node in program.graph.nodes}
    equivalent = {torch.ops.aten.var_mean.correction, torch.ops.aten.expand_as.default}
    assert set(TRANSPOSES) - tried - equivalent == set()
