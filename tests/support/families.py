"""Small networks of the published families: B-cosified networks, CLIP, transformers, U-Nets, written for tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bcos_sdk.models.layers import BcosConv2d, BcosLinear
from support.b_cosified import BcosifiedCnn, BcosifiedVit, DetachedLayerNorm
from support.clip import ClipPool, ClipResNet, ClipVit, with_texts

__all__ = ["FAMILIES", "SIZES", "Checkpointed", "SwitchedConv"]


class Swin(nn.Module):
    """Shifted windows folded into the batch, with relative position bias and a mask."""

    index: Tensor

    def __init__(self, width: int = 8, window: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.patches = BcosConv2d(6, width, 2, 2)
        self.norm = DetachedLayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = BcosLinear(width, width)
        self.head = BcosLinear(width, 5)
        self.window, self.heads = window, heads
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        between = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", between[..., 0] * (2 * window - 1) + between[..., 1])

    def attend(self, x: Tensor, shift: int) -> Tensor:
        batch, height, width, channels = x.shape
        size = self.window
        x = torch.roll(x, (-shift, -shift), (1, 2))
        x = x.view(batch, height // size, size, width // size, size, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, channels)
        q, k, v = self.qkv(x).view(x.shape[0], size * size, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q.detach() @ k.detach().transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(size * size, size * size, -1).permute(2, 0, 1)
        scores = scores + bias.unsqueeze(0)
        if shift:
            regions = torch.zeros(1, height, width, 1)
            regions[:, -shift:] += 1
            regions[:, :, -shift:] += 2
            regions = regions.view(1, height // size, size, width // size, size, 1).permute(0, 1, 3, 2, 4, 5)
            regions = regions.reshape(-1, size * size)
            mask = (regions[:, None] != regions[:, :, None]).to(x.dtype) * -100
            windows = mask.shape[0]
            scores = scores.view(-1, windows, *scores.shape[1:]) + mask[:, None]
            scores = scores.view(-1, *scores.shape[2:])
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, size * size, channels)
        x = self.out(x).view(batch, height // size, width // size, size, size, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        return torch.roll(x, (shift, shift), (1, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        x = x + self.attend(self.norm(x), 0)
        x = x + self.attend(self.norm(x), 1)
        result: Tensor = self.head(x.mean((1, 2)))
        return result


class RegisterVit(nn.Module):
    """Class and register tokens; rotary position embedding of queries and keys, but not of values."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.patches = BcosConv2d(6, width, 4, 4)
        self.tokens = nn.Parameter(torch.randn(1, 3, width))
        self.norm = DetachedLayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out, self.head = BcosLinear(width, width), BcosLinear(width, 5)
        self.heads = heads

    def rotate(self, x: Tensor) -> Tensor:
        count, half = x.shape[-2], x.shape[-1] // 2
        angles = torch.outer(torch.arange(count, dtype=x.dtype), 100.0 ** -(torch.arange(half) / half))
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        x = torch.cat([self.tokens.repeat(len(x), 1, 1), x], dim=1)
        y = self.norm(x)
        q, k, v = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        weights = (self.rotate(q) @ self.rotate(k).mT * q.shape[-1] ** -0.5).softmax(-1).detach()
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        result: Tensor = self.head(x[:, 0] + x[:, 3:].mean(1))
        return result


class FrozenAttention(nn.Module):
    """`nn.MultiheadAttention` with detached queries and keys, so that it is linear in its values."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.patches = BcosConv2d(6, 8, 4, 4)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.head = nn.Linear(8, 4)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).permute(*((0, 2, 1) if self.batch_first else (2, 0, 1)))
        mixed, _ = self.attention(x.detach(), x.detach(), x, need_weights=False)
        result: Tensor = self.head((x + mixed).mean(1 if self.batch_first else 0))
        return result


class UNet(nn.Module):
    """Skip connections; a transposed convolution or bilinear upsampling; a pooled head."""

    def __init__(self, up: nn.Module) -> None:
        super().__init__()
        self.outer, self.inner = BcosConv2d(6, 6, 3, 1, 1), BcosConv2d(6, 8, 3, 1, 1)
        self.up = up
        self.merge = BcosConv2d(14, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.outer(x)
        x = self.inner(F.max_pool2d(skip, 2))
        result: Tensor = self.merge(torch.cat([skip, self.up(x)], dim=1)).mean((2, 3))
        return result


class SwitchedConv(nn.Module):
    """A layer of the first release: `explanation_mode(detach)` is a switch, not a context manager."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.linear = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.detach = False

    def explanation_mode(self, detach: bool = True) -> None:
        self.detach = detach

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        squares = F.avg_pool2d((x * x).sum(1, keepdim=True), self.linear.kernel_size, self.linear.stride, 1)
        scale = out.abs() / (squares.clamp(min=1e-6) * 9).sqrt()
        result: Tensor = out * (scale.detach() if self.detach else scale)
        return result


class Checkpointed(nn.Module):
    """A dense block with gradient checkpoints, as memory-efficient DenseNets have them."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.stem, self.first, self.second = BcosConv2d(6, 4, 3), BcosConv2d(4, 4, 1), BcosConv2d(8, 4, 1)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        more: Tensor = checkpoint(self.first, x, use_reentrant=self.reentrant)
        x = torch.cat([x, more], dim=1)
        result: Tensor = checkpoint(self.second, x, use_reentrant=self.reentrant).mean((2, 3))
        return result


class BlurPool(nn.Module):
    """Reflection padding, then a fixed filter with stride two."""

    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        line = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("filters", (line[:, None] * line).expand(6, 1, 3, 3).clone())
        self.pad = nn.ReflectionPad2d(1)
        self.head = BcosConv2d(6, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(self.pad(x), self.filters, stride=2, groups=x.shape[1])
        result: Tensor = self.head(x).mean((2, 3))
        return result


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "B-cosified CNN": BcosifiedCnn,
    "B-cosified ViT": BcosifiedVit,
    "CLIP, attention pool": lambda: with_texts(ClipPool(), 6),
    "CLIP, ResNet": lambda: with_texts(ClipResNet((1, 1, 1), 8, 2, 6, size=32), 6),
    "CLIP, ResNet without biases": lambda: with_texts(ClipResNet((1, 1, 1), 8, 2, 6, size=32, bias=False), 6),
    "CLIP, ViT": lambda: with_texts(ClipVit(8, 4, 12, 2, 2, 6), 6),
    "CLIP, ViT, batch first": lambda: with_texts(ClipVit(8, 4, 12, 2, 2, 6, batch_first=True), 6),
    "Swin": Swin,
    "ViT with registers and RoPE": RegisterVit,
    "MultiheadAttention": lambda: FrozenAttention(batch_first=True),
    "MultiheadAttention, sequence first": lambda: FrozenAttention(batch_first=False),
    "U-Net, transposed convolution": lambda: UNet(nn.ConvTranspose2d(8, 8, 2, 2)),
    "U-Net, bilinear": lambda: UNet(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)),
    "U-Net, nearest": lambda: UNet(nn.Upsample(scale_factor=2)),
    "BlurPool": BlurPool,
}

SIZES: dict[str, tuple[int, int]] = {"CLIP, ResNet": (32, 32), "CLIP, ResNet without biases": (32, 32)}
"""The input sizes of families that need another than 8×8."""
