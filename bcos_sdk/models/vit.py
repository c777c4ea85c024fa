"""B-cos vision transformers: Simple ViT on patches of pixels, ViT-C on patches of a convolutional stem's output."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from torch import Tensor, nn

from bcos_sdk.models.layers import (
    Attention,
    BcosConv2d,
    BcosLinear,
    LogitLayer,
    PositionalEmbedding,
    TokenNorm,
    make_norm,
)
from bcos_sdk.registry.architectures import NormConfig, ViTConfig

__all__ = ["ViT"]

_STEM_NORM = NormConfig(kind="layer", bias=False)


class ViT(nn.Sequential):
    """The transformer, then the logit layer. It is an nn.Sequential because the published keys begin with `0.`."""

    def __init__(self, config: ViTConfig) -> None:
        logits = LogitLayer(config.resolved_logit_bias, config.temperature)
        super().__init__(OrderedDict([("0", _Transformer(config)), ("logits", logits)]))
        self.config = config


class _Transformer(nn.Module):
    """Tokens of the patches with positions added, encoders, mean over the tokens, B-cos head."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.to_patch_embedding = _PatchEmbedding(config)
        self.transformer = nn.Sequential(OrderedDict((f"encoder_{i}", _Encoder(config)) for i in range(config.depth)))
        head = BcosLinear(config.dim, config.classes, b=config.b, max_out=config.max_out)
        self.linear_head = nn.Sequential(OrderedDict(norm=TokenNorm(config.dim), linear=head))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.transformer(self.to_patch_embedding(x))
        out: Tensor = self.linear_head(tokens.mean(1))
        return out


class _PatchEmbedding(nn.Module):
    """Optional stem, patches flattened to vectors (channel index fastest), B-cos layer to `dim`, positions added."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        conv = partial(BcosConv2d, b=config.b, max_out=config.max_out)
        channels = config.channels
        stem: list[nn.Module] = []
        for width, stride in zip(config.stem, config.stem_strides, strict=True):
            # Published stems have an unused activation here. The Identity keeps their numbering of layers.
            stem += [
                conv(channels, width, 3, stride=stride, padding=1),
                make_norm(width, _STEM_NORM),
                nn.Identity(),
            ]
            channels = width
        self.conv_stem = nn.Sequential(*stem)
        self.patch = config.patch
        self.linear = BcosLinear(channels * config.patch**2, config.dim, b=config.b, max_out=config.max_out)
        self.positions = PositionalEmbedding()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_stem(x)
        height, width = x.shape[2:]
        if height % self.patch or width % self.patch:
            raise ValueError(f"{height}×{width} cannot be divided into patches of {self.patch}×{self.patch}")
        rows, columns = height // self.patch, width // self.patch
        patches = x.reshape(-1, x.shape[1], rows, self.patch, columns, self.patch)
        vectors = patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        tokens: Tensor = self.positions(self.linear(vectors), rows, columns)
        return tokens


class _Encoder(nn.Module):
    """t ↦ t + attn(t), then t ↦ t + mlp(t). Both branches normalise their input first."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        linear = partial(BcosLinear, b=config.b, max_out=config.max_out)
        self.attn = Attention(config.dim, config.heads, b=config.b, max_out=config.max_out)
        net = nn.Sequential(
            OrderedDict(
                norm=TokenNorm(config.dim),
                linear1=linear(config.dim, config.mlp_dim),
                linear2=linear(config.mlp_dim, config.dim),
            )
        )
        self.ff = nn.Sequential(OrderedDict(net=net))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(tokens)
        out: Tensor = tokens + self.ff(tokens)
        return out
