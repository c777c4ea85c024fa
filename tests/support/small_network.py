"""The network of `support.bundles`, in its own file because it needs torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d


class SmallNetwork(nn.Module):
    """Two B-cos convolutions, an added position map, pooling, and a head with a bias."""

    def __init__(self, size: tuple[int, int], classes: int) -> None:
        super().__init__()
        self.stem = BcosConv2d(6, 12, 3, stride=2, padding=1)
        self.position = nn.Parameter(torch.rand(12, size[0] // 2, size[1] // 2) * 0.1)
        self.body = BcosConv2d(12, 16, 3, padding=1)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x) + self.position)
        logits: Tensor = self.head(x.mean((2, 3)) * 20)
        return logits
