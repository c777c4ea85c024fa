"""From the network's last values to logits."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["LogitLayer"]


class LogitLayer(nn.Module):
    """logits = x / temperature + bias, two constants."""

    def __init__(self, bias: float, temperature: float = 1.0) -> None:
        super().__init__()
        self.bias = bias
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return x / self.temperature + self.bias

    def extra_repr(self) -> str:
        return f"bias={self.bias:g}, temperature={self.temperature:g}"
