"""B-cos ResNet and ResNeXt: residual blocks of B-cos convolutions, each followed by a norm."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d, LogitLayer, make_norm
from bcos_sdk.registry.architectures import ResNetConfig

__all__ = ["ResNet"]


class ResNet(nn.Module):
    """Stem, stages of residual blocks, 1×1 B-cos classifier, average over all locations."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        conv = partial(BcosConv2d, b=config.b, max_out=config.max_out)
        imagenet = config.stem == "imagenet"
        self.conv1 = (
            conv(config.channels, config.width, 7, stride=2, padding=3)
            if imagenet
            else conv(config.channels, config.width, 3, padding=1)
        )
        self.bn1 = make_norm(config.width, config.norm)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1) if imagenet else nn.Identity()
        block = _BasicBlock if config.block == "basic" else _Bottleneck
        channels = config.width
        self.stages = [f"layer{i + 1}" for i in range(len(config.blocks))]
        for index, (stage, depth) in enumerate(zip(self.stages, config.blocks, strict=True)):
            planes = config.width * 2**index
            blocks: list[nn.Module] = []
            for position in range(depth):
                stride = 2 if index > 0 and position == 0 else 1
                blocks.append(block(conv, channels, planes, stride, config))
                channels = planes * block.expansion
            self.add_module(stage, nn.Sequential(*blocks))
        self.fc = conv(channels, config.classes, 1)
        self.logits = LogitLayer(config.resolved_logit_bias, config.temperature)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.bn1(self.conv1(x)))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        logits: Tensor = self.logits(self.fc(x).mean((2, 3)))
        return logits


class _ResidualBlock(nn.Module):
    """x ↦ branch(x) + shortcut(x), without an activation after the sum."""

    expansion: int
    downsample: nn.Module | None

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.branch(x) + shortcut

    def _make_downsample(self, conv: Any, channels: int, out: int, stride: int, config: ResNetConfig) -> None:
        needed = stride != 1 or channels != out
        parts = [conv(channels, out, 1, stride=stride), make_norm(out, config.norm)] if needed else []
        self.downsample = nn.Sequential(*parts) if needed else None


class _BasicBlock(_ResidualBlock):
    expansion = 1

    def __init__(self, conv: Any, channels: int, planes: int, stride: int, config: ResNetConfig) -> None:
        super().__init__()
        self.conv1 = conv(channels, planes, 3, stride=stride, padding=1)
        self.bn1 = make_norm(planes, config.norm)
        self.conv2 = conv(planes, planes, 3, padding=1)
        self.bn2 = make_norm(planes, config.norm)
        self._make_downsample(conv, channels, planes, stride, config)

    def branch(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        return out


class _Bottleneck(_ResidualBlock):
    expansion = 4

    def __init__(self, conv: Any, channels: int, planes: int, stride: int, config: ResNetConfig) -> None:
        super().__init__()
        middle = planes * config.base_width // 64 * config.groups
        out = planes * self.expansion
        self.conv1 = conv(channels, middle, 1)
        self.bn1 = make_norm(middle, config.norm)
        self.conv2 = conv(middle, middle, 3, stride=stride, padding=1, groups=config.groups)
        self.bn2 = make_norm(middle, config.norm)
        self.conv3 = conv(middle, out, 1)
        self.bn3 = make_norm(out, config.norm)
        self._make_downsample(conv, channels, out, stride, config)

    def branch(self, x: Tensor) -> Tensor:
        x = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        out: Tensor = self.bn3(self.conv3(x))
        return out
