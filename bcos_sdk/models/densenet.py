"""B-cos DenseNet: every layer reads all earlier outputs of its block. Each convolution follows its norm."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d, LogitLayer, make_norm
from bcos_sdk.registry.architectures import DenseNetConfig

__all__ = ["DenseNet"]


class DenseNet(nn.Module):
    """Stem, dense blocks with transitions that halve the channels, 1×1 B-cos classifier, average over all locations."""

    def __init__(self, config: DenseNetConfig) -> None:
        super().__init__()
        self.config = config
        conv = partial(BcosConv2d, b=config.b, max_out=config.max_out)
        norm = partial(make_norm, config=config.norm)
        channels = config.stem_width
        self.features = nn.Sequential(
            OrderedDict(
                conv0=conv(config.channels, channels, 7, stride=2, padding=3),
                norm0=norm(channels),
                pool0=nn.AvgPool2d(3, stride=2, padding=1),
            )
        )
        for number, depth in enumerate(config.blocks, start=1):
            if number > 1:
                self.features.add_module(f"transition{number - 1}", _transition(conv, norm, channels))
                channels //= 2
            self.features.add_module(f"denseblock{number}", _DenseBlock(conv, norm, channels, depth, config))
            channels += depth * config.growth
        self.features.add_module("norm5", norm(channels))
        self.classifier = conv(channels, config.classes, 1)
        self.logits = LogitLayer(config.resolved_logit_bias, config.temperature)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.classifier(self.features(x)).mean((2, 3)))
        return logits


class _DenseBlock(nn.ModuleDict):
    """x ↦ [x, l₁(x), l₂([x, l₁(x)]), …]: each layer reads the concatenation so far and appends its output."""

    def __init__(self, conv: Any, norm: Any, channels: int, depth: int, config: DenseNetConfig) -> None:
        wide = config.bottleneck * config.growth
        super().__init__()
        for index in range(depth):
            inputs = channels + index * config.growth
            layer = OrderedDict(
                norm1=norm(inputs),
                conv1=conv(inputs, wide, 1),
                norm2=norm(wide),
                conv2=conv(wide, config.growth, 3, padding=1),
            )
            self[f"denselayer{index + 1}"] = nn.Sequential(layer)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.values():
            x = torch.cat([x, layer(x)], dim=1)
        return x


def _transition(conv: Any, norm: Any, channels: int) -> nn.Sequential:
    layers = OrderedDict(norm=norm(channels), conv=conv(channels, channels // 2, 1), pool=nn.AvgPool2d(2, stride=2))
    return nn.Sequential(layers)
