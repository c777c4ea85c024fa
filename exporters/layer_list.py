"""The layers of a module that can be named, with what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import fx, nn

from bcos_sdk.contract import CHANNELS
from bcos_sdk.exporters.capture import capture, nameable_layers
from bcos_sdk.exporters.operators import Trait, has_trait
from bcos_sdk.exporters.program import Program, shape_of
from bcos_sdk.exporters.transpose import carries_everything, explained_nodes

__all__ = ["ListedLayer", "list_layers"]


@dataclass(frozen=True)
class ListedLayer:
    """A layer: its path, its class, the shape of its output, and whether all that is explained passes it."""

    path: str
    kind: str
    shape: tuple[int, ...]
    complete: bool
    cost: float
    """The part of the network's multiplications that is needed to compute the layer."""


def list_layers(
    module: nn.Module, size: tuple[int, int], output: str | None = None, *, channels: int = CHANNELS
) -> list[ListedLayer]:
    """Every layer that `export(layers=…)` accepts, in the order of the computation."""
    named = nameable_layers(module, size, channels=channels, output=output)
    program = capture(module, size, channels=channels, output=output, layers=[one.path for one in named])
    explained = explained_nodes(program)
    whole = max(1, _multiplications(program, program.results[0]))
    return [
        ListedLayer(
            one.path, one.kind, one.shape, carries_everything(program, node), _multiplications(program, node) / whole
        )
        for one, node in zip(named, program.results[1:], strict=True)
        if node in explained
    ]


def _multiplications(program: Program, node: fx.Node) -> int:
    """The multiplications of the products that a value depends on, for one image."""
    reached: set[fx.Node] = set()
    left = [node]
    while left:
        one = left.pop()
        if one not in reached:
            reached.add(one)
            left += one.all_input_nodes
    return sum(_cost(one) for one in program.graph.nodes if one in reached and has_trait(one, Trait.PRODUCT))


def _cost(node: fx.Node) -> int:
    """Elements of the result times the length of each sum. The weight of a product has one sum per output channel."""
    weight = node.args[1]
    assert isinstance(weight, fx.Node)
    outputs = prod(shape_of(node)[1:])
    sides = shape_of(weight)
    return int(outputs * (prod(sides[1:]) if len(sides) == 4 else sides[-1]))
