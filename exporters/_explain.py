"""The explain program: one forward pass, and the rows of W(x) and terms of b(x) for the targets asked for.

`targets` is [batch, K] of integers, or [rows]: one for each image, or any number for one image. c ≥ 0 is class c,
−r the class ranked r (−1 the most likely), and the number of classes stands for a virtual target, the mean of all
logits. All are linear in the logits, so the difference of two explanations is exactly the explanation of the
difference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bcos_sdk.contract import EXPLAIN_OUTPUTS, MOST_RANKS
from bcos_sdk.exporters import _rules  # noqa: F401 - fills the table of rules
from bcos_sdk.exporters._program import Program, sample_shape
from bcos_sdk.exporters._transpose import Transposition

__all__ = ["explain_program", "has_jumps", "resolve_targets", "seed_cotangents"]

aten = torch.ops.aten

_OUTPUTS = tuple(port.name for port in EXPLAIN_OUTPUTS)


def explain_program(forward: Program, *, by_rows: bool = False) -> tuple[Program, tuple[str, ...]]:
    """(image, targets) → EXPLAIN_OUTPUTS, and the names of the bias terms in their order."""
    program = forward.copy()
    graph = program.graph
    (image,) = program.inputs
    (logits,) = program.results
    (classes_count,) = sample_shape(logits)
    with graph.inserting_after(image):
        targets = graph.placeholder("targets")
    program.by_rows = by_rows
    t = Transposition(program)
    t.at(logits)
    classes = t.call(resolve_targets, logits, targets)
    seed = t.call(seed_cotangents, classes, classes_count, logits.meta["val"].dtype)
    weights = t.run(seed)
    t.at(image)
    product = t.call(aten.mul.Tensor, weights, t.per_image(image))
    contributions = t.call(aten.sum.dim_IntList, product, [t.axis(1)])
    terms = t.call(stack_terms, list(t.ledger.values()), seed)
    bias = t.call(aten.sum.dim_IntList, terms, [t.axis(1)])
    (output,) = graph.find_nodes(op="output")
    output.args = ((logits, classes, weights, contributions, bias, terms),)
    program.outputs = _OUTPUTS
    program.remove_marks()
    return program, tuple(t.ledger) or ("none",)


def has_jumps(program: Program) -> bool:
    """Whether W(x) is piecewise constant in part: a maximum takes one path or the other."""
    choices = (aten.max.dim, aten.relu.default, aten.max_pool2d.default)
    return any(node.target in choices for node in program.graph.nodes)


def resolve_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """Ranks → classes; classes stay."""
    ranked = logits.topk(min(logits.shape[1], MOST_RANKS), dim=1).indices
    rank = (-targets - 1).clamp(min=0)
    # Rows and images meet by broadcasting, which no gathering operator does, and OpenVINO expands wrongly at times.
    if targets.ndim == 1:
        is_rank = rank.unsqueeze(1) == torch.arange(ranked.shape[1])
        by_rank = torch.where(is_rank, ranked, 0).sum(1)
    else:
        by_rank = ranked.gather(1, rank)
    return torch.where(targets < 0, by_rank, targets)


def seed_cotangents(classes: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """[…] → […, count]: a unit vector per class; 1/count everywhere for the mean."""
    unit = (classes.unsqueeze(-1) == torch.arange(count)).to(dtype)
    return torch.where(classes.unsqueeze(-1) == count, torch.full((), 1 / count, dtype=dtype), unit)


def stack_terms(terms: list[Tensor], seed: Tensor) -> Tensor:
    """[…, terms]; a network without any bias has one term, zero."""
    return torch.stack(terms, dim=-1) if terms else torch.zeros_like(seed[..., :1])
