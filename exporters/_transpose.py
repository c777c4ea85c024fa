"""The transpose of the frozen linear map: from cotangents of the logits to rows of W(x), plus b(x).

Three parts: tell live from frozen, keep the frozen values the forward pass has computed anyway, then walk
the live nodes in reverse, one rule per operator, adding up cotangents. A frozen value *added* to a live
one is a bias: ⟨cotangent, value⟩ goes into the ledger under the name of where it was added.

Cotangents are laid out in one of two ways. As a *grid* they are [batch, targets, *sample]. As *rows* they are
[rows, *sample], and meet values that are [batch, *sample]: one row per image, or any number of rows of one image.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from bcos_sdk.errors import NotDynamicLinearError
from bcos_sdk.exporters._ops import reshape_cotangent, reshape_sample
from bcos_sdk.exporters._program import Program, is_constant, is_floating, path_of, sample_shape, shape_of
from bcos_sdk.exporters._registrar import registrar

__all__ = ["Rule", "Transposition", "live_nodes", "rule"]

aten = torch.ops.aten


def live_nodes(program: Program) -> set[fx.Node]:
    """The nodes that depend on the image by a path without a `detach`."""
    live = set(program.inputs[:1])
    for node in program.graph.nodes:
        depends = node.op == "call_function" and any(used in live for used in node.all_input_nodes)
        if depends and node.target is not aten.detach.default and _can_be_live(node):
            live.add(node)
    return live


def _can_be_live(node: fx.Node) -> bool:
    """Integers and booleans are choices, not values to be explained; tuples may hold both."""
    return is_floating(node) or isinstance(node.meta.get("val"), (tuple, list))


class Transposition:
    """The reverse walk over one program, appending to its graph. Rules are its callers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.by_rows = program.by_rows
        self.live = live_nodes(program)
        self.ledger: dict[str, fx.Node] = {}
        self._cotangents: dict[fx.Node, fx.Node] = {}
        self._parts: defaultdict[fx.Node, dict[int, fx.Node]] = defaultdict(dict)
        self._node: fx.Node | None = None

    def at(self, node: fx.Node) -> None:
        """What is called from now on belongs to the module of `node`."""
        self._node = node

    def run(self, seed: fx.Node) -> fx.Node:
        """From the cotangent of the logits to that of the image."""
        (logits,) = self.program.results
        (image, *_) = self.program.inputs
        self._cotangents[logits] = seed
        for node in reversed(list(self.program.graph.nodes)):
            if node is image or node not in self.live:
                continue
            self.at(node)
            if node in self._parts:
                self._rule_for(node)(self, node, self._parts.pop(node))
            elif node in self._cotangents:
                self._rule_for(node)(self, node, self._cotangents.pop(node))
        if image not in self._cotangents:
            raise NotDynamicLinearError(
                "the logits do not depend on the image by any live path",
                operator="detach",
                path="",
                hint="Detach the dynamic weights only, not the values they are multiplied with.",
            )
        return self._cotangents[image]

    def _rule_for(self, node: fx.Node) -> Rule:
        if node.target is operator.getitem:
            return _getitem
        try:
            return _RULES[node.target]
        except KeyError:
            raise self.refusal("it has no rule, so it is not known to be linear in its live input") from None

    def call(self, target: Callable[..., Any], *args: Any) -> fx.Node:
        """Append an operation on cotangents, marked as belonging to the module being transposed."""
        assert self._node is not None
        (output,) = self.program.graph.find_nodes(op="output")
        with self.program.graph.inserting_before(output):
            node = self.program.graph.call_function(target, args)
        node.meta.update(path=path_of(self._node), transposed=True)
        return node

    def add(self, value: Any, cotangent: fx.Node) -> None:
        """Give `value` a cotangent, on top of those it has."""
        assert value in self.live, "rules give cotangents to live values"
        have = self._cotangents.get(value)
        self._cotangents[value] = cotangent if have is None else self.call(aten.add.Tensor, have, cotangent)

    def add_part(self, value: fx.Node, index: int, cotangent: fx.Node) -> None:
        have = self._parts[value].get(index)
        self._parts[value][index] = cotangent if have is None else self.call(aten.add.Tensor, have, cotangent)

    def add_bias(self, value: Any, cotangent: fx.Node, sample: tuple[int, ...], *, sign: int = 1) -> None:
        """⟨cotangent, value⟩ into the ledger; `sample` is the shape that value is broadcast to."""
        assert self._node is not None
        product = self.call(aten.mul.Tensor, cotangent, self.beside(value, len(sample) + 1))
        term = self.call(aten.sum.dim_IntList, product, [self.axis(1 + i) for i in range(len(sample))])
        if sign < 0:
            term = self.call(aten.neg.default, term)
        name = self._bias_name(value)
        have = self.ledger.get(name)
        self.ledger[name] = term if have is None else self.call(aten.add.Tensor, have, term)

    def _bias_name(self, value: Any) -> str:
        """A constant's own name, else that of the module it is added in."""
        assert self._node is not None
        if self._node.meta.get("kind") == "LogitLayer":
            return "logit_bias"
        has_name = is_constant(value) and not value.meta.get("anonymous")
        return (path_of(value) if has_name else "") or path_of(self._node) or "bias"

    def beside(self, value: Any, rank: int) -> Any:
        """A frozen value in a form that broadcasts over the targets of a cotangent.

        `rank` is that of the live value beside it: a frozen value of that rank has the batch axis too.
        """
        if not isinstance(value, fx.Node) or is_constant(value) or len(shape_of(value)) < rank:
            return value
        if len(shape_of(value)) > rank:
            raise self.refusal("a frozen value has more axes than the live value it meets")
        return self.per_image(value)

    def per_image(self, value: fx.Node) -> fx.Node:
        """A value with a batch axis in a form that broadcasts over the targets of each image."""
        return value if self.by_rows else self.call(aten.unsqueeze.default, value, 1)

    def axis(self, axis: int) -> int:
        """Where an axis of a value is in its cotangent."""
        return axis if self.by_rows else axis + 1

    def reshape(self, cotangent: fx.Node, sample: tuple[int, ...]) -> fx.Node:
        return self.call(reshape_sample if self.by_rows else reshape_cotangent, cotangent, sample)

    def fit(self, cotangent: fx.Node, value: fx.Node, sample: tuple[int, ...]) -> fx.Node:
        """Sum a cotangent of shape `sample` over the axes along which `value` was broadcast to it."""
        own = sample_shape(value)
        if len(own) != len(sample):
            raise self.refusal("a live value is broadcast across the batch axis")
        axes = [self.axis(1 + i) for i, (mine, full) in enumerate(zip(own, sample, strict=True)) if mine != full]
        return self.call(aten.sum.dim_IntList, cotangent, axes, True) if axes else cotangent

    def refusal(self, reason: str) -> NotDynamicLinearError:
        assert self._node is not None
        path = path_of(self._node)
        return NotDynamicLinearError(
            f"not dynamic linear: {reason} (operator {self._node.target}, module '{path}')",
            operator=str(self._node.target),
            path=path,
            hint="Detach the factor that depends on the input, e.g. x * f(x).detach(), or replace the layer.",
        )


Rule = Callable[[Transposition, fx.Node, Any], None]
_RULES: dict[Any, Rule] = {}


rule = registrar(_RULES)  # @rule(operator, …) registers the transpose of an operator


def _getitem(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    source, index = node.args
    t.add_part(source, index, ct)  # type: ignore[arg-type]
