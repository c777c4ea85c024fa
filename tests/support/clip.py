"""B-cosified image encoders of CLIP, with any numbers of layers, and logits over prompts, written for tests."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.b_cosified import BcosifiedConv, BcosifiedLinear, DetachedLayerNorm, normalise

__all__ = ["ClipPool", "ClipResNet", "ClipVit", "calibrate", "with_texts"]


class UncentredNorm(nn.Module):
    """x · weight / √variance + bias, per channel. In training mode the batch gives the variance."""

    variance: Tensor

    def __init__(self, channels: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + torch.rand(channels))
        self.bias = nn.Parameter(torch.randn(channels) / 4) if bias else None
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.variance.copy_(x.detach().var((0, 2, 3), unbiased=False))
        x = self.weight[:, None, None] * (x / (self.variance + 1e-5).sqrt()[:, None, None])
        return x if self.bias is None else x + self.bias[:, None, None]


def calibrate(module: nn.Module, size: tuple[int, int], batch: int = 4) -> nn.Module:
    """The module in eval mode, with the norms that random images give, as a trained network has them."""
    rgb = torch.rand(batch, 3, *size)
    with torch.no_grad():
        module.train()(torch.cat([rgb, 1 - rgb], dim=1))
    return module.eval()


class Bottleneck(nn.Module):
    """Strides are average pools, also on the shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, *, bias: bool) -> None:
        super().__init__()
        shapes = ((inputs, width, 1), (width, width, 3), (width, 4 * width, 1))
        self.convs = nn.ModuleList(BcosifiedConv(*shape, bias=False) for shape in shapes)
        self.norms = nn.ModuleList(UncentredNorm(shape[1], bias=bias) for shape in shapes)
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != 4 * width:
            conv, norm = BcosifiedConv(inputs, 4 * width, 1, bias=False), UncentredNorm(4 * width, bias=bias)
            self.shortcut = nn.Sequential(nn.AvgPool2d(stride), conv, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](self.convs[0](x)).relu_()
        y = self.pool(self.norms[1](self.convs[1](y)).relu_())
        result: Tensor = self.norms[2](self.convs[2](y))
        result += self.shortcut(x)
        return result.relu_()


class AttentionPool(nn.Module):
    """Sequence first, the mean is the query. Keys and queries are detached."""

    def __init__(self, places: int, width: int, heads: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(places + 1, width) / 3) if bias else None
        self.q, self.k, self.v = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.c = nn.Linear(width, outputs, bias=bias)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(start_dim=2).permute(2, 0, 1)
        x = torch.cat([x.mean(dim=0, keepdim=True), x], dim=0)
        if self.position is not None:
            x = x + self.position[:, None, :].to(x.dtype)
        pooled, _ = F.multi_head_attention_forward(
            x[:1].detach(),
            x.detach(),
            x,
            x.shape[-1],
            self.heads,
            None,
            None if self.position is None else torch.cat([self.q.bias, self.k.bias, self.v.bias]),
            None,
            None,
            False,
            0.0,
            self.c.weight,
            self.c.bias,
            training=self.training,
            need_weights=False,
            use_separate_proj_weight=True,
            q_proj_weight=self.q.weight,
            k_proj_weight=self.k.weight,
            v_proj_weight=self.v.weight,
        )
        return pooled.squeeze(0)


class ClipPool(nn.Module):
    """A stem and the attention pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = BcosifiedConv(6, 8, 3, 2)
        self.pool = AttentionPool(16, 8, 2, 6)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.pool(self.stem(normalise(x)))
        return result


class ClipResNet(nn.Module):
    """A stem of three convolutions, bottlenecks with average pools as strides, and the attention pool."""

    def __init__(
        self, layers: tuple[int, ...], width: int, heads: int, outputs: int, *, size: int = 64, bias: bool = True
    ) -> None:
        super().__init__()
        half = width // 2
        stem: list[nn.Module] = []
        for inputs, channels, stride in ((6, half, 2), (half, half, 1), (half, width, 1)):
            stem += [BcosifiedConv(inputs, channels, 3, stride, bias=False), UncentredNorm(channels, bias=bias)]
            stem += [nn.ReLU(inplace=True)]
        blocks, channels = [], width
        for stage, count in enumerate(layers):
            for place in range(count):
                stride = 2 if stage and not place else 1
                blocks.append(Bottleneck(channels, width << stage, stride, bias=bias))
                channels = 4 * (width << stage)
        self.features = nn.Sequential(*stem, nn.AvgPool2d(2), *blocks)
        self.pool = AttentionPool((size // 2 ** (len(layers) + 1)) ** 2, channels, heads, outputs, bias=bias)
        calibrate(self, (size, size))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.pool(self.features(normalise(x)))
        return result


class QuickGelu(nn.Module):
    """x · σ(1.702 x), with a detached gate."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x).detach()


class ResidualAttention(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)). Queries and keys are detached."""

    def __init__(self, width: int, heads: int, *, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=batch_first)
        self.mlp = nn.Sequential(BcosifiedLinear(width, 4 * width), QuickGelu(), BcosifiedLinear(4 * width, width))
        self.first, self.second = DetachedLayerNorm(width), DetachedLayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x.type(torch.float64 if x.dtype == torch.float64 else torch.float32)).type(x.dtype)
        x = x + self.attention(y.detach(), y.detach(), y, need_weights=False, attn_mask=None)[0]
        result: Tensor = x + self.mlp(self.second(x))
        return result


class ClipVit(nn.Module):
    """Patches, a class token, norms before and after the transformer, and a projection of the class token."""

    def __init__(
        self, size: int, patch: int, width: int, layers: int, heads: int, outputs: int, *, batch_first: bool = False
    ) -> None:
        super().__init__()
        scale = width**-0.5
        self.patches = BcosifiedConv(6, width, patch, patch, padding=0, bias=False)
        self.token = nn.Parameter(scale * torch.randn(width))
        self.position = nn.Parameter(scale * torch.randn((size // patch) ** 2 + 1, width))
        self.before, self.after = DetachedLayerNorm(width), DetachedLayerNorm(width)
        self.blocks = nn.Sequential(*[ResidualAttention(width, heads, batch_first=batch_first) for _ in range(layers)])
        self.projection = nn.Parameter(scale * torch.randn(width, outputs))
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(normalise(x))
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        zeros = torch.zeros(x.shape[0], 1, x.shape[-1], dtype=x.dtype, device=x.device)
        x = torch.cat([self.token.to(x.dtype) + zeros, x], dim=1)
        x = self.before(x + self.position.to(x.dtype))
        x = self.blocks(x) if self.batch_first else self.blocks(x.permute(1, 0, 2)).permute(1, 0, 2)
        result: Tensor = self.after(x[:, 0, :]) @ self.projection
        return result


class PromptLogits(nn.Module):
    """Cosines with a frozen matrix of texts, times a scale."""

    texts: Tensor

    def __init__(self, encoder: nn.Module, width: int, prompts: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("texts", F.normalize(torch.randn(prompts, width), dim=-1))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)
        x = x / x.norm(dim=-1, keepdim=True).detach()
        return self.logit_scale.exp() * x @ self.texts.t()


def with_texts(encoder: nn.Module, width: int, prompts: int = 5) -> nn.Module:
    """The encoder, and logits over prompts."""
    return PromptLogits(encoder, width, prompts)
