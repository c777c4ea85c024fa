"""torch module → the simplified programs of a bundle: predict, and explain in both layouts of targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import fx, nn

from bcos_sdk.contract import (
    BIAS,
    BIAS_TERMS,
    CHANNELS,
    CLASSES,
    CONTRIBUTIONS,
    EXPLAIN_OUTPUTS,
    LOGITS,
    TARGETS,
    WEIGHTS,
    Layout,
    Port,
)
from bcos_sdk.errors import ExportError
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.operators import (
    TRANSPOSES,
    resolve_grid_targets,
    resolve_row_targets,
    seed_cotangents,
    stack_terms,
)
from bcos_sdk.exporters.passes import EXPLAIN_PASSES, FORWARD_PASSES, HalfAnalysis, in_half
from bcos_sdk.exporters.program import Program, sample_shape
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["Compiled", "compile_module", "explain_program", "explain_targets", "simplify"]

aten = torch.ops.aten

_RESOLVE = {Layout.GRID: resolve_grid_targets, Layout.ROWS: resolve_row_targets}


@dataclass(frozen=True)
class Compiled:
    """predict: image → logits; explain: (image, targets) → explanation, in the layout GRID and in the layout ROWS.

    `bias_terms` names the terms of b(x), `rewrites` counts the rewrites of each pass.
    """

    predict: Program
    explain: Program
    explain_rows: Program
    bias_terms: tuple[str, ...]
    rewrites: dict[str, int] = field(default_factory=dict)

    def in_half(self, analysis: HalfAnalysis, keep: Sequence[str]) -> Compiled:
        """The same programs with products in fp16, except in the layers to keep in float32."""
        return replace(
            self,
            predict=in_half(self.predict, {}, keep),
            explain=in_half(self.explain, analysis.exponents, keep),
            explain_rows=in_half(self.explain_rows, analysis.exponents_of(self.explain_rows), keep),
        )


def compile_module(
    module: nn.Module,
    size: tuple[int, int],
    *,
    channels: int = CHANNELS,
    output: str | None = None,
    without: Collection[str] = (),
) -> Compiled:
    """Capture, simplify, transpose, simplify. `without` names passes to leave out, which helps to find a faulty one."""
    known = {simplification.__name__ for simplification in (*FORWARD_PASSES, *EXPLAIN_PASSES)}
    if unknown := set(without) - known:
        raise ExportError(
            f"there is no simplification called {', '.join(sorted(unknown))}",
            hint=f"Choose from {', '.join(sorted(known))}.",
        )
    rewrites: dict[str, int] = {}
    predict = capture(module, size, channels=channels, output=output)
    simplify(predict, FORWARD_PASSES, without, rewrites)
    explain, bias_terms = explain_program(predict)
    simplify(explain, EXPLAIN_PASSES, without, rewrites)
    explain_rows, _ = explain_program(predict, Layout.ROWS)
    simplify(explain_rows, EXPLAIN_PASSES, without, rewrites)
    predict.remove_detach()
    return Compiled(predict, explain, explain_rows, bias_terms, rewrites)


def explain_program(forward: Program, layout: Layout = Layout.GRID) -> tuple[Program, tuple[str, ...]]:
    """The explain program of a forward program, and the names of its bias terms in order.

    It runs the forward pass once, then the transposed pass for the targets, and computes EXPLAIN_OUTPUTS.
    """
    program = forward.copy()
    t, computed = explain_targets(program, layout)
    program.outputs = tuple(port.name for port in EXPLAIN_OUTPUTS)
    (output,) = program.graph.find_nodes(op="output")
    output.args = (tuple(computed[port] for port in EXPLAIN_OUTPUTS),)
    program.remove_detach()
    return program, tuple(t.ledger) or ("none",)


def explain_targets(
    program: Program, layout: Layout, watch: Collection[fx.Node] = ()
) -> tuple[Transposition, dict[Port, fx.Node]]:
    """Append the transposed pass for targets, which become an input. Return it, and the nodes of EXPLAIN_OUTPUTS."""
    graph = program.graph
    (image,) = program.inputs
    logits = program.results[0]
    (classes_count,) = sample_shape(logits)
    with graph.inserting_after(image):
        targets = graph.placeholder(TARGETS.name)
    program.layout = layout
    t = Transposition(program, TRANSPOSES)
    t.at(logits)
    classes = t.call(_RESOLVE[layout], logits, targets)
    seed = t.call(seed_cotangents, classes, classes_count, logits.meta["val"].dtype)
    weights = t.run(seed, watch=watch)
    t.at(image)
    product = t.call(aten.mul.Tensor, weights, t.broadcast_over_targets(image))
    contributions = t.call(aten.sum.dim_IntList, product, [t.axis(1)])
    terms = t.call(stack_terms, list(t.ledger.values()), seed)
    bias = t.call(aten.sum.dim_IntList, terms, [t.axis(1)])
    computed = {
        LOGITS: logits,
        CLASSES: classes,
        WEIGHTS: weights,
        CONTRIBUTIONS: contributions,
        BIAS: bias,
        BIAS_TERMS: terms,
    }
    return t, computed


def simplify(
    program: Program,
    passes: Collection[Callable[[Program], int]],
    without: Collection[str],
    rewrites: dict[str, int],
) -> None:
    for simplification in passes:
        name = simplification.__name__
        if name not in without:
            rewrites[name] = rewrites.get(name, 0) + simplification(program)
            program.clean()
