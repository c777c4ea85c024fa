"""Operators that turn targets into cotangents of the logits, and stack bias terms. The contract defines targets."""

from __future__ import annotations

import torch
from onnx import TensorProto
from torch import Tensor, fx

from bcos_sdk.contract import MOST_RANKS, mean_target
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.program import bind, shape_of

__all__ = [
    "TARGET_OPERATORS",
    "resolve_grid_targets",
    "resolve_positions",
    "resolve_row_targets",
    "seed_cotangents",
    "stack_terms",
]


def resolve_grid_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """Replace ranks by classes in targets [batch, targets]."""
    ranked = logits.topk(min(logits.shape[1], MOST_RANKS), dim=1).indices
    by_rank = ranked.gather(1, (-targets - 1).clamp(min=0))
    return torch.where(targets < 0, by_rank, targets)


def resolve_row_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """Replace ranks by classes in targets [rows].

    Targets [rows] broadcast against logits [batch, classes], which gather operators do not support. An Expand before
    them is wrong in OpenVINO for some shapes. So a comparison and a sum select the class of each rank.
    """
    ranked = logits.topk(min(logits.shape[1], MOST_RANKS), dim=1).indices
    is_rank = (-targets - 1).clamp(min=0).unsqueeze(1) == torch.arange(ranked.shape[1])
    by_rank = torch.where(is_rank, ranked, 0).sum(1)
    return torch.where(targets < 0, by_rank, targets)


def resolve_positions(values: Tensor, positions: Tensor) -> Tensor:
    """Replace −1 by the position of the largest value in positions […], for values […, positions]."""
    return torch.where(positions < 0, values.argmax(-1), positions)


def seed_cotangents(classes: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """[…] → […, count]: the unit vector of each class; 1/count everywhere for the mean of all logits."""
    unit = (classes.unsqueeze(-1) == torch.arange(count)).to(dtype)
    is_mean = classes.unsqueeze(-1) == mean_target(count)
    return torch.where(is_mean, torch.full((), 1 / count, dtype=dtype), unit)


def stack_terms(terms: list[Tensor], seed: Tensor) -> Tensor:
    """Stack the bias terms to […, terms]. A network without bias gets one term, which is zero."""
    return torch.stack(terms, dim=-1) if terms else torch.zeros_like(seed[..., :1])


def _ranks(e: Emitter, node: fx.Node) -> tuple[str, str, int]:
    """Classes sorted by their logits, the rank of each target counted from 0, and the number of ranks."""
    a = bind(node)
    ranks = min(shape_of(a.logits)[1], MOST_RANKS)
    ranked = e.pick("TopK", 1, a.logits, e.ints(ranks), axis=1)
    rank = e.op("Max", e.op("Sub", e.op("Neg", a.targets), e.ints(1)), e.ints(0))
    return ranked, rank, ranks


def _spell_resolve_grid_targets(e: Emitter, node: fx.Node) -> str:
    ranked, rank, _ranks_count = _ranks(e, node)
    return _classes_or(e, node, e.op("GatherElements", ranked, rank, axis=1))


def _spell_resolve_row_targets(e: Emitter, node: fx.Node) -> str:
    ranked, rank, ranks = _ranks(e, node)
    is_rank = e.op("Equal", e.op("Unsqueeze", rank, e.ints(1)), e.ints(*range(ranks)))
    by_rank = e.op("ReduceSum", e.op("Where", is_rank, ranked, e.ints(0)), e.ints(1), keepdims=0)
    return _classes_or(e, node, by_rank)


def _classes_or(e: Emitter, node: fx.Node, by_rank: str) -> str:
    targets = bind(node).targets
    return e.op("Where", e.op("Less", targets, e.ints(0)), by_rank, targets)


def _spell_resolve_positions(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    largest = e.op("ArgMax", a.values, axis=len(shape_of(a.values)) - 1, keepdims=0)
    return e.op("Where", e.op("Less", a.positions, e.ints(0)), largest, a.positions)


def _spell_seed_cotangents(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    classes = e.op("Unsqueeze", a.classes, e.ints(len(shape_of(a.classes))))
    unit = e.op("Cast", e.op("Equal", classes, e.ints(*range(a.count))), to=TensorProto.FLOAT)
    return e.op("Where", e.op("Equal", classes, e.ints(mean_target(a.count))), 1 / a.count, unit)


def _spell_stack_terms(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    last = len(shape_of(node)) - 1
    if not a.terms:
        first = e.op("Slice", a.seed, e.ints(0), e.ints(1), e.ints(last))
        return e.op("Mul", first, 0.0)
    return e.op("Concat", *(e.op("Unsqueeze", term, e.ints(last)) for term in a.terms), axis=last)


TARGET_OPERATORS = (
    Operator(resolve_grid_targets, Kind.EXPLAIN, _spell_resolve_grid_targets),
    Operator(resolve_row_targets, Kind.EXPLAIN, _spell_resolve_row_targets),
    Operator(resolve_positions, Kind.EXPLAIN, _spell_resolve_positions),
    Operator(seed_cotangents, Kind.EXPLAIN, _spell_seed_cotangents),
    Operator(stack_terms, Kind.EXPLAIN, _spell_stack_terms),
)
