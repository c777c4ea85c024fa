"""B-cosified networks, small, and the layers that they are made of, written for tests."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "BcosifiedCnn",
    "BcosifiedConv",
    "BcosifiedLinear",
    "BcosifiedVit",
    "DetachedGelu",
    "DetachedLayerNorm",
    "TwinStem",
    "normalise",
]

_MEAN = (0.485, 0.456, 0.406, 0.515, 0.544, 0.594)
_STD = (0.229, 0.224, 0.225, 0.229, 0.224, 0.225)


def normalise(x: Tensor) -> Tensor:
    """(x − mean) / std, with constants that are built and checked in the forward pass, as torchvision does."""
    mean, std = torch.as_tensor(_MEAN, dtype=x.dtype), torch.as_tensor(_STD, dtype=x.dtype)
    if (std == 0).any():
        raise ValueError("std is zero")
    return x.clone().sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def _b_cos(out: Tensor, norm: Tensor) -> Tensor:
    """A linear result times its detached |cos|."""
    return out * (out.abs() / (norm + 1e-6)).detach()


class BcosifiedConv(nn.Module):
    """A plain convolution, with its bias and without unit norm, times |cos|."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, *, padding: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.window = (kernel, stride, kernel // 2 if padding is None else padding)
        self.linear = nn.Conv2d(inputs, outputs, *self.window, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        squares = F.avg_pool2d((x * x).sum(1, keepdim=True), *self.window, divisor_override=1)
        return _b_cos(self.linear(x), (squares + 1e-6).sqrt())


class BcosifiedLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return _b_cos(self.linear(x), torch.linalg.vector_norm(x, dim=-1, keepdim=True))


class DetachedGelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (0.5 * (1 + torch.erf(x / math.sqrt(2)))).detach() * x


class DetachedLayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        variance = x.detach().var(-1, unbiased=False, keepdim=True)
        return (x - x.mean(-1, keepdim=True)) / (variance + self.eps).sqrt() * self.weight + self.bias


class TwinStem(nn.Module):
    """A stem with the weights [w, −w] / 2. The contributions of a grey image are zero."""

    def __init__(self, *, normalised: bool = True) -> None:
        super().__init__()
        self.normalised = normalised
        self.stem = BcosifiedConv(6, 8, 3)
        self.head = nn.Conv2d(8, 4, 1, bias=False)
        with torch.no_grad():
            half = self.stem.linear.weight[:, :3] / 2
            self.stem.linear.weight.copy_(torch.cat([half, -half], dim=1))
        if not normalised:
            self.stem.linear.bias = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(normalise(x) if self.normalised else x)
        result: Tensor = self.head(x).mean((2, 3))
        return result


class BcosifiedCnn(TwinStem):
    """Normalisation inside, a no-op cast before an addition in place, biases, ReLU, logit bias as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = BcosifiedConv(8, 8, 3), BcosifiedConv(8, 8, 3, 2)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(normalise(x)).relu_()
        branch = self.norm(self.first(x)).type(x.dtype)
        branch += x
        x = F.avg_pool2d(branch.relu_(), 3, 2, 1)
        result: Tensor = self.head(self.second(x)).mean((2, 3)) - math.log(999)
        return result


class BcosifiedVit(nn.Module):
    """A class token, position embedding, attention with detached queries and keys, and a detached GELU."""

    def __init__(self, width: int = 12, heads: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(6, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 5, width))
        self.norm, self.last = DetachedLayerNorm(width), DetachedLayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = BcosifiedLinear(width, width)
        self.mlp = nn.Sequential(BcosifiedLinear(width, 20), DetachedGelu(), BcosifiedLinear(20, width))
        self.head = BcosifiedLinear(width, 5)
        self.heads = heads

    def attend(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q.detach(), k.detach(), v)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, count, width))
        return result

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(normalise(x)).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        x = x + self.attend(self.norm(x))
        x = x + self.mlp(self.last(x))
        result: Tensor = self.head(x[:, 0])
        return result
