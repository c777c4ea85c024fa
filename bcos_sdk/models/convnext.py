"""B-cos ConvNeXt: blocks of depthwise 7×7 and pointwise B-cos convolutions, with a scaled residual branch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d, LogitLayer, make_norm
from bcos_sdk.registry.architectures import ConvNeXtConfig

__all__ = ["ConvNeXt"]

_EXPANSION = 4
_INITIAL_LAYER_SCALE = 1e-6


class ConvNeXt(nn.Module):
    """4×4 stem, stages with 2×2 downsampling between them, 1×1 B-cos classifier, average over all locations."""

    def __init__(self, config: ConvNeXtConfig) -> None:
        super().__init__()
        self.config = config
        conv = partial(BcosConv2d, b=config.b, max_out=config.max_out)
        norm = partial(make_norm, config=config.norm)
        channels = config.widths[0]
        layers: list[nn.Module] = [conv(config.channels, channels, 4, stride=4), norm(channels)]
        for width, depth in zip(config.widths, config.blocks, strict=True):
            if len(layers) > 2:
                layers.append(nn.Sequential(norm(channels), conv(channels, width, 2, stride=2)))
                channels = width
            layers.append(nn.Sequential(*(_Block(conv, norm, width) for _ in range(depth))))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(norm(channels), conv(channels, config.classes, 1))
        self.logits = LogitLayer(config.resolved_logit_bias, config.temperature)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.classifier(self.features(x)).mean((2, 3)))
        return logits


class _Block(nn.Module):
    """x ↦ x + layer_scale · branch(x)."""

    def __init__(self, conv: Any, norm: Any, width: int) -> None:
        super().__init__()
        self.layer_scale = nn.Parameter(torch.full((width, 1, 1), _INITIAL_LAYER_SCALE))
        self.block = nn.Sequential(
            conv(width, width, 7, padding=3, groups=width),
            norm(width),
            conv(width, _EXPANSION * width, 1),
            conv(_EXPANSION * width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.block(x)
        return x + self.layer_scale * branch
