"""The plain B-cos network of the CIFAR-10 study: convolutions only, without norms or activations."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d, LogitLayer
from bcos_sdk.registry.architectures import PlainConfig

__all__ = ["Plain"]


class Plain(nn.Sequential):
    """3×3 B-cos convolutions, 1×1 B-cos classifier, average over all locations.

    Without norms the signal shrinks from layer to layer, and more so for a larger B. To compensate, each output is
    divided by `scale`.
    """

    def __init__(self, config: PlainConfig) -> None:
        conv = partial(BcosConv2d, b=config.b, max_out=config.max_out)
        inputs = (config.channels, *config.widths)
        layers = [
            conv(before, width, 3, stride=stride, padding=1)
            for before, width, stride in zip(inputs, config.widths, config.strides, strict=False)
        ]
        super().__init__(*layers, conv(inputs[-1], config.classes, 1))
        self.config = config
        self.depth = len(self)
        self.logits = LogitLayer(config.resolved_logit_bias, config.temperature)

    def forward(self, x: Tensor) -> Tensor:
        for index in range(self.depth):
            x = self[index](x) / self.config.scale
        logits: Tensor = self.logits(x.mean((2, 3)))
        return logits
