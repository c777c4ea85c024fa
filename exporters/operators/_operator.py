"""The entry of one operator: kind, batch rule, transpose rule, ONNX spelling, rewrite at capture, traits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any

from torch import fx

from bcos_sdk.exporters.batching import BatchRule
from bcos_sdk.exporters.onnx import Spelling
from bcos_sdk.exporters.program import Program
from bcos_sdk.exporters.transpose import Rule

__all__ = ["Kind", "Operator", "Rewrite", "Trait"]

Rewrite = Callable[[Program, fx.Node], None]


class Kind(Enum):
    """Where an operator may occur, and what its entry must define."""

    LINEAR = "linear in its live operands when the others are frozen; needs a transpose and an ONNX spelling"
    CHOICE = "linear when its choice (such as the index of the maximum) is frozen; needs the same as LINEAR"
    FROZEN = "not linear, so it may read frozen values only; needs an ONNX spelling and has no transpose"
    EXPLAIN = "created by the transposed pass or by a simplification; needs an ONNX spelling"
    SPELLING = "equal to other operators of the table; needs a rewrite or a batch rule that creates them"


class Trait(Flag):
    """Properties of an operator that passes and capture use."""

    NONE = 0
    PRODUCT = auto()
    """Linear in each of its first two arguments: a convolution or a matrix product, which may run in fp16."""
    HAS_BIAS = auto()
    """Its third argument is a bias that is added to the result."""
    REORDERS = auto()
    """Every element of the input occurs exactly once in the output: a permutation or a reshape."""
    STEPS = auto()
    """Its floating-point result has jumps, so rounding errors of the input may change it much."""


_NEEDS = {
    Kind.LINEAR: {"transpose", "onnx"},
    Kind.CHOICE: {"transpose", "onnx"},
    Kind.FROZEN: {"onnx"},
    Kind.EXPLAIN: {"onnx"},
    Kind.SPELLING: set(),
}


@dataclass(frozen=True)
class Operator:
    """One entry of the operator table.

    `target` is an aten overload or one of our own functions in plain torch. `transpose` is its rule in the transposed
    pass, `onnx` its spelling. Two functions run at capture: `rewrite` may replace a node of the program for one image
    by other operators, and `batch` creates the nodes of the program for a batch.
    """

    target: Any
    kind: Kind
    onnx: Spelling | None = None
    transpose: Rule | None = None
    batch: BatchRule | None = None
    rewrite: Rewrite | None = None
    traits: Trait = Trait.NONE

    def __post_init__(self) -> None:
        defined = {name for name in ("onnx", "transpose", "rewrite") if getattr(self, name) is not None}
        needed = _NEEDS[self.kind]
        if self.kind is Kind.SPELLING and (self.batch is None) == (self.rewrite is None):
            raise ValueError(f"operator {self.target} is SPELLING, but has not one of batch and rewrite")
        if missing := needed - defined:
            raise ValueError(f"operator {self.target} is {self.kind.name}, but has no {', '.join(sorted(missing))}")
        if self.kind in (Kind.LINEAR, Kind.CHOICE, Kind.FROZEN) and self.batch is None:
            raise ValueError(f"operator {self.target} is {self.kind.name}, but has no batch rule")
        if surplus := defined - needed - {"rewrite"}:
            raise ValueError(f"operator {self.target} is {self.kind.name}, but has {', '.join(sorted(surplus))}")
        if Trait.HAS_BIAS in self.traits and Trait.PRODUCT not in self.traits:
            raise ValueError(f"operator {self.target} has a bias, but is not a product")
