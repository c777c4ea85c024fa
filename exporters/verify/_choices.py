"""The choices of a program, and a run of the program in which they are imposed.

A choice is a boolean or an integer that is computed from floating-point values, such as the mask of a ReLU or the index
of a maximum, or a value with steps, such as a sign. Rounding can change it, and W(x) jumps with it. Everything else in
a program is continuous. So two runs that make the same choices give nearly the same W(x).
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.operators import Trait, has_trait, resolve_grid_targets, resolve_row_targets
from bcos_sdk.exporters.program import Program, infer_shapes, is_constant, is_floating
from bcos_sdk.exporters.verify._oracle import default_precision

__all__ = ["Decide", "Read", "Replay", "Run", "choices_of", "decision", "origin_of", "recomputed", "sources_of"]

aten = torch.ops.aten

Read: TypeAlias = Callable[[fx.Node], Any]
Decide: TypeAlias = Callable[[int, Read], Tensor]
"""Decides the choice with this number. `Read` gives the values that the run has computed for its sources."""

_RESOLVE = (resolve_grid_targets, resolve_row_targets)  # the classes to explain are given


def choices_of(program: Program) -> list[fx.Node]:
    """The nodes that make a choice, in the order of the computation."""
    infer_shapes(program)
    return [node for node in program.graph.nodes if node.op == "call_function" and _is_choice(node)]


def _is_choice(node: fx.Node) -> bool:
    if not isinstance(node.meta.get("val"), Tensor) or node.target in _RESOLVE:
        return False
    if has_trait(node, Trait.STEPS):
        return True
    return not is_floating(node) and any(map(is_floating, sources_of(node)))


def sources_of(choice: fx.Node) -> list[fx.Node]:
    """The values that a choice is made from, without constants."""
    call: Any = choice.args[0] if choice.target is operator.getitem else choice
    return [node for node in call.all_input_nodes if not is_constant(node)]


def origin_of(source: fx.Node, sources: Collection[fx.Node] = ()) -> fx.Node:
    """The value whose rounding errors decide: for a ReLU its input, because half of its results are exactly zero.

    If a source is computed from another source of the same choice alone, as the largest of some values is, it is the
    other one: both have the same rounding errors.
    """
    node = source
    while len(inputs := [one for one in node.all_input_nodes if not is_constant(one)]) == 1:
        (node,) = inputs
        if node in sources:
            return origin_of(node, sources)
    return source.all_input_nodes[0] if source.target is aten.relu.default else source


def recomputed(source: fx.Node, origin: fx.Node, value: Any, read: Read) -> Any:
    """The source, for another value of its origin."""
    if source is origin:
        return value
    return decision(source, lambda node: read(node) if is_constant(node) else recomputed(node, origin, value, read))


def decision(choice: fx.Node, read: Read) -> Any:
    """The choice that torch makes for these values of its sources."""
    if choice.target is operator.getitem:
        call: Any = choice.args[0]
        return decision(call, read)[choice.args[1]]
    assert callable(choice.target)
    args, kwargs = fx.map_arg((choice.args, choice.kwargs), read)
    return choice.target(*args, **kwargs)


class Run(NamedTuple):
    """The outputs of a program by name, and its choices in order."""

    outputs: dict[str, Tensor]
    choices: list[Tensor]


class Replay:
    """Runs a program in torch in one precision. It makes its own choices, or gets them."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.choices = choices_of(program)
        self._program, self._dtype = program, dtype
        self._numbers = {node: number for number, node in enumerate(self.choices)}
        self._unused_after = self._lifetimes()

    def run(self, images: Tensor, targets: Tensor, decide: Decide | None = None) -> Run:
        """Run the program on images [B, …] with targets [B, K]. Without `decide` torch makes the choices."""
        with default_precision(self._dtype):
            return self._run(images, targets, decide)

    def _run(self, images: Tensor, targets: Tensor, decide: Decide | None) -> Run:
        inputs = dict(zip(self._program.inputs, (images.to(self._dtype), targets), strict=True))
        values: dict[fx.Node, Any] = {}

        def read(node: fx.Node) -> Any:
            return self._constant(node) if node.op == "get_attr" else values[node]

        choices = []
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                values[node] = inputs[node]
            elif node in self._numbers:
                made = decision(node, read) if decide is None else decide(self._numbers[node], read)
                values[node] = made.to(self._in_precision(node.meta["val"].dtype))
                choices.append(values[node])
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), read)
                values[node] = node.target(*map(self._in_precision, args), **kwargs)
            for unused in self._unused_after[node]:
                values.pop(unused, None)
        results = {name: values[node] for name, node in zip(self._program.outputs, self._program.results, strict=True)}
        return Run(results, choices)

    def _constant(self, node: fx.Node) -> Tensor:
        value = self._program.value_of(node)
        return value.to(self._in_precision(value.dtype))

    def _in_precision(self, value: Any) -> Any:
        """The precision of the run in place of another one; every other argument as it is."""
        return self._dtype if value in (torch.float32, torch.float64) else value

    def _lifetimes(self) -> dict[fx.Node, list[fx.Node]]:
        """After each node, the values that no later node reads."""
        last: dict[fx.Node, fx.Node] = {}
        for node in self._program.graph.nodes:
            sources = sources_of(node) if node in self._numbers else []
            for used in (*node.all_input_nodes, *sources, *(origin_of(source, sources) for source in sources)):
                last[used] = node
        unused: defaultdict[fx.Node, list[fx.Node]] = defaultdict(list)
        for used, node in last.items():
            if node.op != "output":
                unused[node].append(used)
        return unused
