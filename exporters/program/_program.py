"""A program: a torch.fx graph in a small set of operators, and the constants it reads.

Every value that depends on the image has the batch as its first axis. All other sizes are known. A program runs in
torch in any precision, which is how each step of the exporter is tested.

Node metadata: `val` is the value's shape and dtype (for a constant, the value itself), `path` the path of the module
that the node belongs to. `transposed` marks nodes of the transposed pass, `bias_name` names the bias term that a node
adds, `bias_source` the constant that a node repeats for each image, `anonymous` marks constants that are no parameter
of the module, `half` marks constants stored in fp16, `foreign` operators without an entry,
`sample` is the sample shape of an input of floats per target.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from bcos_sdk.contract import EXPLAIN_INPUTS, LAYER_INPUTS, Layout

__all__ = [
    "Program",
    "bind",
    "is_constant",
    "is_floating",
    "is_uniform",
    "pair",
    "path_of",
    "reshape_sample",
    "sample_shape",
    "shape_of",
]

_INPUTS = {port.name for port in (*EXPLAIN_INPUTS, *LAYER_INPUTS)}


class Program:
    """`graph` over `constants`, with named `outputs`; `layout` says how its targets and cotangents are laid out."""

    def __init__(
        self, graph: fx.Graph, constants: dict[str, Tensor], outputs: tuple[str, ...], layout: Layout = Layout.GRID
    ) -> None:
        self.graph = graph
        self.constants = constants
        self.outputs = outputs
        self.layout = layout

    @property
    def inputs(self) -> list[fx.Node]:
        return list(self.graph.find_nodes(op="placeholder"))

    @property
    def results(self) -> tuple[fx.Node, ...]:
        """The nodes that compute the outputs, in the order of `outputs`."""
        (output,) = self.graph.find_nodes(op="output")
        results: Any = output.args[0]
        return tuple(results)

    def value_of(self, node: fx.Node) -> Tensor:
        """The constant that a `get_attr` node reads."""
        return self.constants[str(node.target)]

    def constant(self, name: str, value: Tensor, *, anonymous: bool = False) -> fx.Node:
        """Add a constant and return the node that reads it. A number is appended to `name` if it is taken.

        An anonymous constant is no parameter of the module, such as an index or a window of ones.
        """
        stem = name.replace(".", "_") or "constant"
        unique, number = stem, 0
        while unique in self.constants or unique in _INPUTS:
            number += 1
            unique = f"{stem}_{number}"
        self.constants[unique] = value
        first = next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            node = self.graph.create_node("get_attr", unique)
        node.meta.update(val=value, path=name)
        if anonymous:
            node.meta["anonymous"] = True
        return node

    def copy(self) -> Program:
        """A copy with its own graph; the constants are shared."""
        graph = fx.Graph()
        graph.output(graph.graph_copy(self.graph, {}))
        return Program(graph, dict(self.constants), self.outputs, self.layout)

    def clean(self) -> None:
        """Remove nodes and constants that no output needs, also assertions."""
        self.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
        read = {node.target for node in self.graph.find_nodes(op="get_attr")}
        self.constants = {name: value for name, value in self.constants.items() if name in read}

    def remove_detach(self) -> None:
        """Remove every `detach`. A program that has been transposed no longer needs them."""
        for detach in self.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
            detach.replace_all_uses_with(detach.args[0])
        self.clean()

    def run(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The outputs by name, computed in torch."""
        results = self.module()(*inputs)
        return dict(zip(self.outputs, results, strict=True))

    def module(self) -> fx.GraphModule:
        """The program as a torch module."""
        root = nn.Module()
        for name, value in self.constants.items():
            root.register_buffer(name, value)
        module = fx.GraphModule(root, self.graph)
        self.graph.owning_module = None  # otherwise fx would look for constants added later in this module
        return module

    def insert(self, before: fx.Node, target: Callable[..., Any], *args: Any) -> fx.Node:
        """Insert a call before a node and give it the node's metadata, except its shape."""
        with self.graph.inserting_before(before):
            new = self.graph.call_function(target, args)
        new.meta = {key: value for key, value in before.meta.items() if key != "val"}
        return new

    def compute(self, before: fx.Node, target: Callable[..., Any], *args: Any) -> fx.Node:
        """`insert`, and infer the shape and the dtype of the result from those of the arguments."""
        new = self.insert(before, target, *args)
        mode = self.inputs[0].meta["val"].fake_mode

        def value(node: fx.Node) -> Any:
            return mode.from_tensor(node.meta["val"], static_shapes=True) if node.op == "get_attr" else node.meta["val"]

        with mode:
            new.meta["val"] = target(*fx.map_arg(args, value))
        return new

    def replace(self, node: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Replace a node by a call that computes the same value, and give the call the node's metadata."""
        with self.graph.inserting_before(node):
            new = self.graph.call_function(target, args, kwargs)
        new.meta = dict(node.meta)
        self.substitute(node, new)
        return new

    def substitute(self, node: fx.Node, value: fx.Node) -> None:
        """Let every use of a node read another value, and remove the node."""
        node.replace_all_uses_with(value)
        self.graph.erase_node(node)


def is_uniform(weights: Tensor) -> bool:
    """Whether all elements are equal, so that a product with them is only a scaled sum."""
    return bool((weights == weights.flatten()[0]).all())


def path_of(node: fx.Node) -> str:
    """The path of the module that the node belongs to; empty for the root module."""
    return str(node.meta.get("path", ""))


def shape_of(node: fx.Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def sample_shape(node: fx.Node) -> tuple[int, ...]:
    """The shape of one sample: all axes but the batch."""
    return tuple(int(size) for size in shape_of(node)[1:])


def is_constant(value: object) -> bool:
    return isinstance(value, fx.Node) and value.op == "get_attr"


def is_floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64, torch.float16)


def bind(node: fx.Node) -> SimpleNamespace:
    """The node's arguments by the parameter names of its operator, with defaults filled in."""
    if isinstance(node.target, OpOverload):
        schema = node.target._schema.arguments
        given = dict(zip((argument.name for argument in schema), node.args, strict=False)) | node.kwargs
        named = [argument for argument in schema if argument.name in given or argument.has_default_value()]
        return SimpleNamespace(**{one.name: given.get(one.name, one.default_value) for one in named})
    assert callable(node.target)
    bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    return SimpleNamespace(**bound.arguments)


def pair(value: Any) -> tuple[int, int]:
    """Expand 3, [3] or [3, 5] to two integers: aten writes one number where both are equal."""
    first, *rest = [value] if isinstance(value, int) else value
    return first, rest[0] if rest else first


def reshape_sample(x: Tensor, sample: tuple[int, ...], leading: int) -> Tensor:
    """[*leading axes, …] → [*leading axes, *sample]: the operator for every reshape that keeps the leading axes."""
    return x.reshape(*x.shape[:leading], *sample)
