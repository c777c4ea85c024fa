"""What is known of one operator: its kind, its transpose, its ONNX spelling, its rewrite at capture, its traits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any

from torch import fx

from bcos_sdk.exporters.onnx import Spelling
from bcos_sdk.exporters.program import Program
from bcos_sdk.exporters.transpose import Rule

__all__ = ["Kind", "Operator", "Rewrite", "Trait"]

Rewrite = Callable[[Program, fx.Node], None]


class Kind(Enum):
    """Where an operator may occur, and what its entry must define."""

    LINEAR = "linear in its live operands when the others are frozen; needs a transpose and an ONNX spelling"
    CHOICE = "linear when its choice is frozen, e.g. which value is the largest; W(x) jumps where the choice changes"
    FROZEN = "not linear, so it may read frozen values only; needs an ONNX spelling and has no transpose"
    EXPLAIN = "made by the transposed pass or by a pass over programs, never captured; needs an ONNX spelling"
    SPELLING = "another spelling of other operators; capture rewrites it"


class Trait(Flag):
    """Facts that passes ask for."""

    NONE = 0
    PRODUCT = auto()
    """Linear in each of its first two arguments: a convolution or a matrix product, which may run in fp16."""
    HAS_BIAS = auto()
    """Its third argument is a bias that is added to the result."""
    REORDERS = auto()
    """Every element of the input occurs exactly once in the output: a permutation or a reshape."""
    ALIASES = auto()
    """In torch the result may share memory with the input."""


_NEEDS = {
    Kind.LINEAR: {"transpose", "onnx"},
    Kind.CHOICE: {"transpose", "onnx"},
    Kind.FROZEN: {"onnx"},
    Kind.EXPLAIN: {"onnx"},
    Kind.SPELLING: {"rewrite"},
}


@dataclass(frozen=True)
class Operator:
    """One entry of the operator table.

    `target` is an aten overload or one of our own functions in plain torch. `transpose` is its rule in the transposed
    pass, `onnx` its spelling. `rewrite` runs at capture and may replace a node by other operators.
    """

    target: Any
    kind: Kind
    onnx: Spelling | None = None
    transpose: Rule | None = None
    rewrite: Rewrite | None = None
    traits: Trait = Trait.NONE

    def __post_init__(self) -> None:
        defined = {name for name in ("onnx", "transpose", "rewrite") if getattr(self, name) is not None}
        needed = _NEEDS[self.kind]
        if missing := needed - defined:
            raise ValueError(f"operator {self.target} is {self.kind.name}, but has no {', '.join(sorted(missing))}")
        if surplus := defined - needed - {"rewrite"}:
            raise ValueError(f"operator {self.target} is {self.kind.name}, but has {', '.join(sorted(surplus))}")
        if Trait.HAS_BIAS in self.traits and Trait.PRODUCT not in self.traits:
            raise ValueError(f"operator {self.target} has a bias, but is not a product")
