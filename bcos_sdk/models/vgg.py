"""B-cos VGG: stages of 3×3 B-cos convolutions, each stage followed by an average pool."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d, LogitLayer, make_norm
from bcos_sdk.registry.architectures import VGGConfig

__all__ = ["VGG"]


class VGG(nn.Module):
    """Stages, classifier of three B-cos convolutions, average over all locations."""

    def __init__(self, config: VGGConfig) -> None:
        super().__init__()
        self.config = config
        conv = partial(BcosConv2d, b=config.b, max_out=config.max_out)
        channels = config.channels
        layers: list[nn.Module] = []
        for stage in config.stages:
            for width in stage:
                layers += [conv(channels, width, 3, padding=1), make_norm(width, config.norm)]
                channels = width
            layers.append(nn.AvgPool2d(2, stride=2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            conv(channels, config.hidden, 7, padding=3),
            conv(config.hidden, config.hidden, 1),
            conv(config.hidden, config.classes, 1),
        )
        self.logits = LogitLayer(config.resolved_logit_bias, config.temperature)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.classifier(self.features(x)).mean((2, 3)))
        return logits
