"""From targets to the cotangents of the logits, and from bias terms to one tensor."""

from __future__ import annotations

from onnx import TensorProto
from torch import fx

from bcos_sdk.contract import MOST_RANKS
from bcos_sdk.exporters import _explain as explain
from bcos_sdk.exporters._emit import Emitter
from bcos_sdk.exporters._program import bind, shape_of
from bcos_sdk.exporters.onnx_ops._table import spells


@spells(explain.resolve_targets)
def resolve_targets(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    ranks = min(shape_of(a.logits)[1], MOST_RANKS)
    ranked = e.pick("TopK", 1, a.logits, e.ints(ranks), axis=1)
    rank = e.op("Max", e.op("Sub", e.op("Neg", a.targets), e.ints(1)), e.ints(0))
    if len(shape_of(a.targets)) == 1:
        is_rank = e.op("Equal", e.op("Unsqueeze", rank, e.ints(1)), e.ints(*range(ranks)))
        by_rank = e.op("ReduceSum", e.op("Where", is_rank, ranked, e.ints(0)), e.ints(1), keepdims=0)
    else:
        by_rank = e.op("GatherElements", ranked, rank, axis=1)
    return e.op("Where", e.op("Less", a.targets, e.ints(0)), by_rank, a.targets)


@spells(explain.seed_cotangents)
def seed_cotangents(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    classes = e.op("Unsqueeze", a.classes, e.ints(len(shape_of(a.classes))))
    unit = e.op("Cast", e.op("Equal", classes, e.ints(*range(a.count))), to=TensorProto.FLOAT)
    return e.op("Where", e.op("Equal", classes, e.ints(a.count)), 1 / a.count, unit)


@spells(explain.stack_terms)
def stack_terms(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    last = len(shape_of(node)) - 1
    if not a.terms:
        first = e.op("Slice", a.seed, e.ints(0), e.ints(1), e.ints(last))
        return e.op("Mul", first, 0.0)
    return e.op("Concat", *(e.op("Unsqueeze", term, e.ints(last)) for term in a.terms), axis=last)
