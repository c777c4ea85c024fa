"""The transpose of the frozen linear map: from cotangents of the logits to rows of W(x), plus b(x).

First, live values are separated from frozen ones. The frozen values come from the forward pass. Then the live nodes are
visited in reverse order, and one rule per operator adds to the cotangents of its live operands. A frozen value that is
*added* to a live one is a bias: ⟨cotangent, value⟩ goes into the ledger under the name of the added value.

A cotangent has the leading axes of the program's layout: [batch, targets, *sample] in a grid, [rows, *sample] in rows.
In ROWS a cotangent broadcasts against values [batch, *sample]: one row per image, or several rows of one image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import fx

from bcos_sdk.contract import Layout
from bcos_sdk.errors import ExportError, NotDynamicLinearError, UnsupportedOperatorError
from bcos_sdk.exporters.program import (
    Program,
    ShapeInference,
    is_constant,
    is_floating,
    path_of,
    reshape_sample,
    sample_shape,
    shape_of,
)

__all__ = ["Rule", "Transposition", "carries_everything", "explained_nodes", "live_nodes"]

aten = torch.ops.aten


def live_nodes(program: Program) -> set[fx.Node]:
    """The nodes that depend on the image on a path without `detach`."""
    live = set(program.inputs[:1])
    for node in program.graph.nodes:
        depends = node.op == "call_function" and any(used in live for used in node.all_input_nodes)
        if depends and node.target is not aten.detach.default and _can_be_live(node):
            live.add(node)
    return live


def explained_nodes(program: Program, without: fx.Node | None = None) -> set[fx.Node]:
    """The live nodes from which a path without `detach` leads to the logits: those that the reverse walk visits.

    Paths through the node `without` do not count.
    """
    live = live_nodes(program)
    reached: set[fx.Node] = set()
    left = [node for node in program.results[:1] if node in live]
    while left:
        node = left.pop()
        if node not in reached and node is not without:
            reached.add(node)
            left += [used for used in node.all_input_nodes if used in live]
    return reached


def carries_everything(program: Program, node: fx.Node) -> bool:
    """Whether every live path from the image to the logits passes the node: whether it is a cut of the live graph."""
    return program.inputs[0] not in explained_nodes(program, without=node)


def _can_be_live(node: fx.Node) -> bool:
    """Integers and booleans are choices, so they are frozen. A tuple may hold live values."""
    return is_floating(node) or isinstance(node.meta.get("val"), (tuple, list))


class Transposition:
    """The reverse walk over one program. It appends the transposed pass to the program's graph.

    `rules` has one rule per operator. A rule gets the transposition, a node and the cotangent of the node's result. It
    calls `add` for each live operand and `add_bias` for each frozen value that is added, or raises `refusal`.
    """

    def __init__(self, program: Program, rules: Mapping[Any, Rule]) -> None:
        self.program = program
        self.live = live_nodes(program)
        self.ledger: dict[str, fx.Node] = {}
        self.passed: dict[fx.Node, tuple[fx.Node, dict[str, fx.Node]]] = {}
        self._rules = rules
        self._shapes = ShapeInference(program)
        for node in program.graph.nodes:
            self._shapes.infer(node)
        self._cotangents: dict[fx.Node, fx.Node] = {}
        self._parts: defaultdict[fx.Node, dict[int, fx.Node]] = defaultdict(dict)
        self._node: fx.Node | None = None

    def at(self, node: fx.Node) -> None:
        """Attribute the operators called from now on to the module of `node`."""
        self._node = node

    def run(self, seed: fx.Node, start: fx.Node | None = None, watch: Collection[fx.Node] = ()) -> fx.Node:
        """Walk from the cotangent of the logits, `seed`, to the cotangent of the image, and return that.

        With `start` the seed is the cotangent of this value instead. `passed` then has, for each node to `watch` that
        the walk reaches, its cotangent and the bias terms that enter above it.
        """
        (image, *_) = self.program.inputs
        self._cotangents[self.program.results[0] if start is None else start] = seed
        for node in reversed(list(self.program.graph.nodes)):
            if node in watch and node in self._cotangents:
                self.passed[node] = self._cotangents[node], dict(self.ledger)
            if node is image or node not in self.live:
                continue
            self.at(node)
            if node in self._parts:
                self._rule_for(node)(self, node, self._parts.pop(node))
            elif node in self._cotangents:
                self._rule_for(node)(self, node, self._cotangents.pop(node))
        if image not in self._cotangents:
            raise NotDynamicLinearError(
                "the logits do not depend on the image on any path without detach",
                operator="detach",
                path="",
                hint="Detach only the dynamic weights, not the values that they multiply.",
            )
        return self._cotangents[image]

    def _rule_for(self, node: fx.Node) -> Rule:
        try:
            return self._rules[node.target]
        except KeyError:
            if node.meta.get("foreign"):
                raise UnsupportedOperatorError(
                    f"operator {node.target} in module '{path_of(node)}' is not supported for a live value",
                    source=path_of(node),
                    hint="Detach its input if that is frozen, or replace the operator: docs/operators.md lists those "
                    "that are supported.",
                ) from None
            raise self.refusal("it is not linear in its input, which is live") from None

    def constant(self, name: str, value: torch.Tensor) -> fx.Node:
        """Add a constant that is no parameter of the module, and infer its shape."""
        node = self.program.constant(name, value, anonymous=True)
        self._shapes.infer(node)
        return node

    def call(self, target: Callable[..., Any], *args: Any) -> fx.Node:
        """Append an operator to the transposed pass, and infer its shape."""
        assert self._node is not None
        (output,) = self.program.graph.find_nodes(op="output")
        with self.program.graph.inserting_before(output):
            node = self.program.graph.call_function(target, args)
        node.meta.update(path=path_of(self._node), transposed=True)
        self._shapes.infer(node)
        return node

    def add(self, value: Any, cotangent: fx.Node) -> None:
        """Add to the cotangent of the live `value`. The shape must be [*leading axes, *sample shape of the value]."""
        assert value in self.live, "only live values have cotangents"
        self._check_shape(value, cotangent)
        have = self._cotangents.get(value)
        self._cotangents[value] = cotangent if have is None else self.call(aten.add.Tensor, have, cotangent)

    def _check_shape(self, value: fx.Node, cotangent: fx.Node) -> None:
        expected, shape = (*self._shapes.leading, *sample_shape(value)), shape_of(cotangent)
        if shape != expected:
            assert self._node is not None
            raise ExportError(
                f"the transpose rule of {self._node.target} in '{path_of(self._node)}' gave a cotangent of shape "
                f"{list(shape)}, expected {list(expected)}",
                source=path_of(self._node),
                hint="This is a fault in the exporter's rule for the operator. Please report it.",
            )

    def add_part(self, value: fx.Node, index: int, cotangent: fx.Node) -> None:
        """Add a cotangent to the `index`-th result of an operator that returns several."""
        have = self._parts[value].get(index)
        self._parts[value][index] = cotangent if have is None else self.call(aten.add.Tensor, have, cotangent)

    def add_bias(self, value: Any, cotangent: fx.Node, sample: tuple[int, ...], *, sign: int = 1) -> None:
        """Add ±⟨cotangent, value⟩ to the ledger. `sample` is the sample shape that the value broadcasts to."""
        product = self.call(aten.mul.Tensor, cotangent, self.broadcast_frozen(value, len(sample) + 1))
        term = self.call(aten.sum.dim_IntList, product, [self.axis(1 + i) for i in range(len(sample))])
        if sign < 0:
            term = self.call(aten.neg.default, term)
        name = self._bias_name(value)
        have = self.ledger.get(name)
        self.ledger[name] = term if have is None else self.call(aten.add.Tensor, have, term)

    def _bias_name(self, value: Any) -> str:
        """The name that capture gave the bias, else the name of the constant, else the path of the module."""
        assert self._node is not None
        if "bias_name" in self._node.meta:
            return str(self._node.meta["bias_name"])
        if isinstance(value, fx.Node) and "bias_source" in value.meta:
            return str(value.meta["bias_source"])
        has_name = is_constant(value) and not value.meta.get("anonymous")
        return (path_of(value) if has_name else "") or path_of(self._node) or "bias"

    def broadcast_frozen(self, value: Any, rank: int) -> Any:
        """Reshape a frozen operand so that it broadcasts against a cotangent.

        If the operand has a batch axis, insert the targets axis after it. `rank` is the rank of the live operand: a
        frozen value of the same rank has the batch axis, one of lower rank does not.
        """
        if not isinstance(value, fx.Node) or is_constant(value) or len(shape_of(value)) < rank:
            return value
        if len(shape_of(value)) > rank:
            raise self.refusal("a frozen operand has more axes than the live one")
        return self.broadcast_over_targets(value)

    def broadcast_over_targets(self, value: fx.Node) -> fx.Node:
        """Insert the targets axis after the batch axis, so that the value broadcasts over the targets of its image."""
        return value if self.program.layout is Layout.ROWS else self.call(aten.unsqueeze.default, value, 1)

    def axis(self, axis: int) -> int:
        """The axis of a cotangent that corresponds to an axis of its value."""
        return axis + len(self._shapes.leading) - 1

    def reshape(self, cotangent: fx.Node, sample: tuple[int, ...]) -> fx.Node:
        """Reshape all but the leading axes to `sample`."""
        return self.call(reshape_sample, cotangent, sample, len(self._shapes.leading))

    def sum_to(self, cotangent: fx.Node, value: fx.Node, sample: tuple[int, ...]) -> fx.Node:
        """Sum a cotangent with the sample shape `sample` over the axes along which `value` was broadcast."""
        own = sample_shape(value)
        if len(own) != len(sample):
            raise self.refusal("a live value is broadcast across the batch axis")
        axes = [self.axis(1 + i) for i, (mine, full) in enumerate(zip(own, sample, strict=True)) if mine != full]
        return self.call(aten.sum.dim_IntList, cotangent, axes, True) if axes else cotangent

    def refusal(self, reason: str) -> NotDynamicLinearError:
        """The error for a node that is not linear in its live operands."""
        assert self._node is not None
        path = path_of(self._node)
        return NotDynamicLinearError(
            f"operator {self._node.target} in module '{path}' is not dynamic linear: {reason}",
            operator=str(self._node.target),
            path=path,
            hint="Detach the factor that depends on the input, e.g. x * f(x).detach(), or replace the layer.",
        )


Rule = Callable[[Transposition, fx.Node, Any], None]
