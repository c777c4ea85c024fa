"""A program for one image → a program for a batch: every value that depends on the image gets the batch axis first.

Capture runs the module on one image, so all sizes are known, and the module may use the batch axis as it likes: move
it, merge it with windows or heads, remove it. Here S is the shape of a value for one image. In the new program the
value has the shape [batch, *S]. If S begins with 1, which is the batch axis of nearly every value, that axis is left
out, and the shape is [batch, *S[1:]]. So a network that keeps the batch as its first axis gives the program that one
expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.program import Program, infer_shapes, path_of, reshape_sample, shape_of

__all__ = ["BatchRule", "Batching"]

aten = torch.ops.aten

Shape = tuple[int, ...]


class Batching:
    """The walk over a program for one image. `rules` has one rule per operator, which creates its nodes for a batch.

    `otherwise` is the rule of all other operators.

    A rule gets this object and a node of the old program. It reads its operands with `own`, `full` or `aligned`,
    creates nodes with `call`, and returns the node for the result. `settle` stores a result that has all axes.
    """

    def __init__(self, program: Program, rules: Mapping[Any, BatchRule], otherwise: BatchRule) -> None:
        self.old = program
        self.new = Program(fx.Graph(), program.constants, program.outputs, program.layout)
        self._rules = rules
        self._otherwise = otherwise
        self._values: dict[fx.Node, fx.Node] = {}
        self._per_image: set[fx.Node] = set()
        self._node: fx.Node | None = None
        self.has_full_results: set[fx.Node] = set()
        """Operators with several results, each [batch, *S]."""

    def run(self) -> Program:
        """The program for a batch."""
        for node in self.old.graph.nodes:
            self._node = node
            if node.op == "output":
                self.new.graph.output(tuple(self._result(result) for result in node.args[0]))
            elif node.op == "call_function":
                self._per_image.add(node)
                self._values[node] = self._rules.get(node.target, self._otherwise)(self, node)
            else:
                self._values[node] = self.new.graph.node_copy(node)
                if node.op == "placeholder":
                    self._per_image.add(node)
        infer_shapes(self.new)
        return self.new

    def _result(self, node: fx.Node) -> fx.Node:
        """A result as [batch, …]: a single value per image gets an axis of length one."""
        return self.own(node) if shape_of(node)[1:] else self.call(reshape_sample, self.own(node), (1,), 1)

    # ------------------------------------------------------------------------------------------------- for rules

    def is_per_image(self, value: Any) -> bool:
        """Whether the value depends on the image, so that it has the batch axis. Constants and numbers do not."""
        return value in self._per_image

    def keeps_first(self, shape: Shape) -> bool:
        """Whether a value of this shape has its first axis left out, because the batch is in its place."""
        return shape[:1] == (1,)

    def own(self, value: Any) -> Any:
        """The value of the new program as it is stored."""
        return self._values.get(value, value) if isinstance(value, fx.Node) else value

    def full(self, node: fx.Node) -> fx.Node:
        """The value with all its axes: [batch, *S]."""
        if not self.keeps_first(shape_of(node)):
            return self._values[node]
        return self.call(reshape_sample, self.own(node), shape_of(node), 1)

    def aligned(self, value: Any, rank: int, *, full: bool) -> Any:
        """The operand of an operator that broadcasts, with axes of length one in front, so that S has `rank` axes.

        With `full` it is [batch, *S], otherwise the batch takes the place of the first axis.
        """
        if not self.is_per_image(value):
            return self.own(value)
        shape = (1,) * (rank - len(shape_of(value))) + shape_of(value)
        wanted = shape if full else shape[1:]
        have = shape_of(value)[1:] if self.keeps_first(shape_of(value)) else shape_of(value)
        return self.own(value) if wanted == have else self.call(reshape_sample, self.own(value), wanted, 1)

    def with_batch(self, value: fx.Node, *, full: bool) -> Any:
        """`aligned` to its own rank. A constant is repeated for each image."""
        if self.is_per_image(value):
            return self.aligned(value, len(shape_of(value)), full=full)
        sample = shape_of(value) if full else shape_of(value)[1:]
        image = self.call(aten.detach.default, self.own(self.old.inputs[0]))
        repeated = self.call(repeat_for_batch, self.own(value), image, sample)
        if not value.meta.get("anonymous"):
            repeated.meta["bias_source"] = path_of(value)
        return repeated

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Append a node to the new program, with the metadata of the old node."""
        assert self._node is not None
        node = self.new.graph.call_function(target, args, kwargs)
        node.meta = {key: value for key, value in self._node.meta.items() if key != "val"}
        return node

    def settle(self, result: fx.Node, shape: Shape) -> fx.Node:
        """Store a result that was computed as [batch, *S]."""
        return self.call(reshape_sample, result, shape[1:], 1) if self.keeps_first(shape) else result

    def refusal(self, reason: str, hint: str) -> CaptureError:
        """The error for a node that cannot be computed for a batch."""
        assert self._node is not None
        path = path_of(self._node)
        return CaptureError(
            f"operator {self._node.target} in module '{path}' cannot be computed for a batch of images: {reason}",
            source=path,
            hint=hint,
        )


def repeat_for_batch(constant: torch.Tensor, image: torch.Tensor, sample: Shape) -> torch.Tensor:
    """[*sample] → [batch, *sample]: the same constant for each image."""
    return constant.reshape(1, *sample).expand(len(image), *sample)


BatchRule = Callable[[Batching, fx.Node], Any]
