"""The parts from which the networks of the collection are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d

__all__ = ["CHANNELS", "SIZE", "Make", "Of", "Step", "Table", "holding", "net", "steps"]

SIZE = (8, 8)
CHANNELS = 8
Step = Callable[[Tensor], Tensor]
Make = Callable[[], nn.Module]
Table = dict[str, Make]


class Of(nn.Module):
    """A function as a module, with the tensors and modules that it reads as `m.name`."""

    def __init__(self, function: Callable[..., Tensor], **held: Any) -> None:
        super().__init__()
        self.function = function
        self.reads = bool(held)
        for name, value in held.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x) if self.reads else self.function(x)


class _Net(nn.Module):
    """A B-cos stem [batch, 6, 8, 8] → [batch, 8, 8, 8], a step, and five different sums of its result."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.stem = BcosConv2d(6, CHANNELS, 3, padding=1)
        self.step = step
        with torch.no_grad():
            width = self.step(self.stem(torch.rand(1, 6, *SIZE))).flatten(1).shape[1]
        self.head = nn.Linear(width, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.step(4 * self.stem(x)).flatten(1))
        return logits


def net(step: Callable[[], nn.Module]) -> Make:
    """A network around one step."""
    return lambda: _Net(step())


def holding(function: Callable[..., Tensor], **makers: Callable[[], Any]) -> Make:
    """A network around a function that reads tensors or modules; they are made when the network is made."""
    return net(lambda: Of(function, **{name: make() for name, make in makers.items()}))


def steps(table: dict[str, Step]) -> Table:
    """A network around each function."""
    return {name: net(lambda step=step: Of(step)) for name, step in table.items()}  # type: ignore[misc]
