"""One small function per operator and use of it; together they contain every operator of the exporter's table."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


def positive(x: Tensor) -> Tensor:
    """A frozen value that is never zero or negative."""
    return x.detach().abs() + 0.5


CASES: dict[str, Function] = {
    "convolution": lambda x: F.conv2d(x, constant(2, 4, 3, 3), constant(2)),
    "average pool": lambda x: F.avg_pool2d(x, 2),
    "max pool": lambda x: F.max_pool2d(x, 2),
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
    "frozen functions of one value": lambda x: (
        x * (x.detach().cos() + x.detach().sin() + x.detach().exp() + x.detach().tanh() + x.detach().square())
    ),
    "frozen roots and powers": lambda x: (
        x * (positive(x).log() + positive(x).rsqrt() + positive(x).reciprocal() + positive(x) ** 1.5 + x.detach() ** 2)
        + x * torch.pow(positive(x), x.detach().sigmoid()) * positive(x) ** 0.5
    ),
    "frozen comparisons": lambda x: (
        x * torch.maximum(x.detach(), constant(4, 1, 1)) * torch.minimum(x.detach(), constant(4, 1, 1))
        + x * torch.where(x.detach() > constant(4, 1, 1), x.detach(), x.detach().clamp_min(0.1))
    ),
    "frozen reductions": lambda x: (
        x
        * x.detach().amax(1, keepdim=True)
        / (x.detach().var(1, correction=1, keepdim=True) + x.detach().norm(dim=1, keepdim=True))
        - torch.var_mean(x, dim=1, correction=0)[1].unsqueeze(1)
    ),
    "frozen repeated values": lambda x: x * x.detach()[:, :2].repeat_interleave(2, dim=1),
    "batch norm": lambda x: F.batch_norm(x, constant(4), constant(4).exp(), constant(4), constant(4) + 1),
}
