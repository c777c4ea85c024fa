"""A program: a torch.fx graph in a small set of operators, and the constants it reads.

Every tensor in it that depends on the image has the batch as its first axis, and sizes that are known
but for that one. Programs can be run in torch, in any precision, which is how each step is tested.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

__all__ = ["Program", "bind", "is_constant", "is_floating", "is_uniform", "pair", "path_of", "sample_shape", "shape_of"]


class Program:
    """`graph` over `constants`; its outputs are named by `outputs`, and laid out as a grid of targets or by rows."""

    def __init__(
        self, graph: fx.Graph, constants: dict[str, Tensor], outputs: tuple[str, ...], *, by_rows: bool = False
    ) -> None:
        self.graph = graph
        self.constants = constants
        self.outputs = outputs
        self.by_rows = by_rows

    @property
    def inputs(self) -> list[fx.Node]:
        return list(self.graph.find_nodes(op="placeholder"))

    @property
    def results(self) -> tuple[fx.Node, ...]:
        """The nodes that the outputs come from, in the order of `outputs`."""
        (output,) = self.graph.find_nodes(op="output")
        results: Any = output.args[0]
        return tuple(results)

    def value_of(self, node: fx.Node) -> Tensor:
        """The constant that a `get_attr` node reads."""
        return self.constants[str(node.target)]

    def constant(self, name: str, value: Tensor) -> fx.Node:
        """A node that reads `value`, stored under a name that begins as asked."""
        stem = name.replace(".", "_") or "constant"
        unique, number = stem, 0
        while unique in self.constants:
            number += 1
            unique = f"{stem}_{number}"
        self.constants[unique] = value
        first = next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            node = self.graph.create_node("get_attr", unique)
        node.meta.update(val=value, path=name)
        return node

    def copy(self) -> Program:
        """The same program, whose graph can be changed without changing this one."""
        graph = fx.Graph()
        graph.output(graph.graph_copy(self.graph, {}))
        return Program(graph, dict(self.constants), self.outputs, by_rows=self.by_rows)

    def clean(self) -> None:
        """Drop what no output needs, checks among it."""
        self.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
        read = {node.target for node in self.graph.find_nodes(op="get_attr")}
        self.constants = {name: value for name, value in self.constants.items() if name in read}

    def remove_marks(self) -> None:
        """Drop every `detach`: once a program is transposed they say nothing any more."""
        for mark in self.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
            mark.replace_all_uses_with(mark.args[0])
        self.clean()

    def run(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The outputs by name, computed in torch."""
        results = self.module()(*inputs)
        return dict(zip(self.outputs, results, strict=True))

    def module(self) -> fx.GraphModule:
        root = nn.Module()
        for name, value in self.constants.items():
            root.register_buffer(name, value)
        module = fx.GraphModule(root, self.graph)
        self.graph.owning_module = None  # or fx would look for constants that are added later in this module
        return module

    def insert(self, before: fx.Node, target: Callable[..., Any], *args: Any) -> fx.Node:
        """A call that belongs to the module of the node it is put before."""
        with self.graph.inserting_before(before):
            new = self.graph.call_function(target, args)
        new.meta = {key: value for key, value in before.meta.items() if key != "val"}
        return new

    def replace(self, node: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Put a call with the same result in the place of `node`, and give it its metadata."""
        with self.graph.inserting_before(node):
            new = self.graph.call_function(target, args, kwargs)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        self.graph.erase_node(node)
        return new


def is_uniform(weights: Tensor) -> bool:
    """Whether all numbers are alike: a product with them only adds up."""
    return bool((weights == weights.flatten()[0]).all())


def path_of(node: fx.Node) -> str:
    """The path of the module that the node belongs to; empty for the root."""
    return str(node.meta.get("path", ""))


def shape_of(node: fx.Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def sample_shape(node: fx.Node) -> tuple[int, ...]:
    """The shape of one sample: without the batch axis."""
    return tuple(int(size) for size in shape_of(node)[1:])


def is_constant(value: object) -> bool:
    return isinstance(value, fx.Node) and value.op == "get_attr"


def bind(node: fx.Node) -> SimpleNamespace:
    """The node's arguments by the names that its operator gives them, defaults filled in."""
    if isinstance(node.target, OpOverload):
        schema = node.target._schema.arguments
        given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
        given |= dict(zip((argument.name for argument in schema), node.args, strict=False))
        return SimpleNamespace(**(given | node.kwargs))
    assert callable(node.target)
    bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    return SimpleNamespace(**bound.arguments)


def pair(value: Any) -> tuple[int, int]:
    """aten writes one number, or a list of one, for two that are equal."""
    first, *rest = [value] if isinstance(value, int) else value
    return first, rest[0] if rest else first


def is_floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64, torch.float16)
