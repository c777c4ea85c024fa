"""The operator table: one entry per operator has everything that the exporter knows about it.

To add an operator, add one entry to the file of similar operators. `Operator` raises an error for an incomplete entry.
A test fails until a case compares the entry with the operator's Jacobian.
"""

from collections.abc import Iterable
from typing import Any

from torch import fx

from bcos_sdk.exporters.batching import BatchRule
from bcos_sdk.exporters.onnx import Spellings
from bcos_sdk.exporters.operators._arithmetic import ARITHMETIC
from bcos_sdk.exporters.operators._choices import CHOICES
from bcos_sdk.exporters.operators._complex import COMPLEX
from bcos_sdk.exporters.operators._elementwise import ELEMENTWISE, from_half, to_half
from bcos_sdk.exporters.operators._foreign import batch_of_foreign, spell_foreign
from bcos_sdk.exporters.operators._linear_maps import LINEAR_MAPS, conv_transpose, flipped_conv
from bcos_sdk.exporters.operators._max_pools import MAX_POOLS
from bcos_sdk.exporters.operators._moves import MOVES
from bcos_sdk.exporters.operators._operator import Kind, Operator, Rewrite, Trait
from bcos_sdk.exporters.operators._piecewise import PIECEWISE
from bcos_sdk.exporters.operators._reductions import REDUCTIONS, avg_pool_transpose, repeat_average
from bcos_sdk.exporters.operators._resampling import RESAMPLING
from bcos_sdk.exporters.operators._reshaping import RESHAPING
from bcos_sdk.exporters.operators._slicing import SLICING, pick_every
from bcos_sdk.exporters.operators._target_operators import (
    TARGET_OPERATORS,
    resolve_grid_targets,
    resolve_positions,
    resolve_row_targets,
    seed_cotangents,
    stack_terms,
)
from bcos_sdk.exporters.transpose import Rule

__all__ = [
    "BATCH_RULES",
    "GROUPS",
    "OPERATORS",
    "REWRITES",
    "SPELLINGS",
    "TRANSPOSES",
    "Kind",
    "Operator",
    "Trait",
    "avg_pool_transpose",
    "batch_of_foreign",
    "conv_transpose",
    "flipped_conv",
    "from_half",
    "has_trait",
    "kind_of",
    "pick_every",
    "repeat_average",
    "resolve_grid_targets",
    "resolve_positions",
    "resolve_row_targets",
    "seed_cotangents",
    "stack_terms",
    "to_half",
]


def _by_target(operators: Iterable[Operator]) -> dict[Any, Operator]:
    table: dict[Any, Operator] = {}
    for operator in operators:
        assert operator.target not in table, f"operator {operator.target} has two entries"
        table[operator.target] = operator
    return table


GROUPS: dict[str, tuple[Operator, ...]] = {
    "arithmetic": ARITHMETIC,
    "linear maps": LINEAR_MAPS,
    "resampling": RESAMPLING,
    "sums, means and average pools": REDUCTIONS,
    "reshaping": RESHAPING,
    "moving and copying elements": MOVES,
    "slicing and joining": SLICING,
    "piecewise linear functions": PIECEWISE,
    "selections": CHOICES,
    "max pools": MAX_POOLS,
    "functions of single elements": ELEMENTWISE,
    "complex numbers": COMPLEX,
    "targets": TARGET_OPERATORS,
}
"""The entries by kind of operator. docs/operators.md lists them."""

OPERATORS = _by_target(operator for group in GROUPS.values() for operator in group)
"""Every operator that a program may contain, by its fx target."""

TRANSPOSES: dict[Any, Rule] = {target: one.transpose for target, one in OPERATORS.items() if one.transpose}
SPELLINGS = Spellings({target: one.onnx for target, one in OPERATORS.items() if one.onnx}, otherwise=spell_foreign)
BATCH_RULES: dict[Any, BatchRule] = {target: one.batch for target, one in OPERATORS.items() if one.batch}
REWRITES: dict[Any, Rewrite] = {target: one.rewrite for target, one in OPERATORS.items() if one.rewrite}


def kind_of(node: fx.Node) -> Kind | None:
    """The kind of the node's operator; None for inputs, constants and unknown operators."""
    return OPERATORS[node.target].kind if node.target in OPERATORS else None


def has_trait(node: fx.Node, trait: Trait) -> bool:
    """Whether the node's operator has the trait; unknown operators have none."""
    return node.target in OPERATORS and trait in OPERATORS[node.target].traits
