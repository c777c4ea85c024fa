"""A·x in half precision between floats: y = float(half(A) · half(x)) + b, and everything else as it was.

Convolutions and matrix products, forward and transposed, are the only operators that change. They read their data
through a cast and their weights as half constants; their results are floats at once, and a bias is added to those.
A sum that is spelled as a convolution, as patch norms are, is a reduction and none of them.

Half has no numbers below 6e-8, where cotangents of deep networks lie. So they are multiplied by a power of two before
the cast and divided by it afterwards, which is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters._ops import (
    conv_transpose,
    flipped_conv,
    from_half,
    reshape_cotangent,
    reshape_sample,
    to_half,
)
from bcos_sdk.exporters._program import Program, bind, is_constant, is_uniform, path_of

__all__ = ["in_half", "is_cotangent", "layer_of", "operands", "products", "settings"]

aten = torch.ops.aten

_ROOT = "(the root module)"
# Each is linear in both of its first two arguments; aten's take a bias as the third, but for matmul.
_WITH_BIAS = (aten.conv2d.default, aten.linear.default)
_PRODUCTS = (*_WITH_BIAS, aten.matmul.default, conv_transpose, flipped_conv)
_MOVES = (aten.permute.default, aten.unsqueeze.default, reshape_sample, reshape_cotangent)


def in_half(program: Program, exponents: Mapping[fx.Node, int], keep: Collection[str] = ()) -> Program:
    """A copy whose products run in half, but for those of the layers to keep, forward and transposed alike.

    `exponents` has the powers of two for the cotangents of the program's products.
    """
    half = program.copy()
    rewriter = _Rewriter(half)
    for original, node in zip(products(program), products(half), strict=True):
        if layer_of(node) not in keep:
            rewriter.rewrite(node, exponents.get(original, 0))
    half.clean()
    return half


def products(program: Program) -> list[fx.Node]:
    """Every convolution and matrix product that may run in half, in the order of the computation."""
    return [
        node
        for node in program.graph.nodes
        if node.op == "call_function" and node.target in _PRODUCTS and not _is_sum(program, node)
    ]


def layer_of(node: fx.Node) -> str:
    """The name under which an operator and its transpose stay in float together."""
    return path_of(node) or _ROOT


def operands(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The two factors of a product."""
    first, second, *_ = node.args
    assert isinstance(first, fx.Node)
    assert isinstance(second, fx.Node)
    return first, second


def settings(node: fx.Node) -> tuple[Any, ...]:
    """What a product takes after its factors: stride and the like, and no bias."""
    return (None, *node.args[3:]) if node.target in _WITH_BIAS else node.args[2:]


def is_cotangent(value: fx.Node) -> bool:
    """Whether the value comes down from the logits, rather than up from the image or out of the weights."""
    return bool(_moved(value).meta.get("transposed"))


def _is_sum(program: Program, node: fx.Node) -> bool:
    """Whether the product only adds up: all its weights are equal, or it is ⟨x, x⟩."""
    first, second = map(_moved, operands(node))
    for factor in (first, second):
        if is_constant(factor):
            return is_uniform(program.value_of(factor))
    return first is second


def _moved(value: fx.Node) -> fx.Node:
    """Where the numbers of a value come from that were only put in another order."""
    while value.target in _MOVES:
        (value,) = value.all_input_nodes
    return value


class _Rewriter:
    """Turns products of one program into half, each value cast once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._float = program.inputs[0].meta["val"].dtype
        self._halves: dict[tuple[fx.Node, int], fx.Node] = {}

    def rewrite(self, node: fx.Node, exponent: int) -> None:
        halves = [self._half(one, exponent if is_cotangent(one) else 0, node) for one in operands(node)]
        bias: Any = bind(node).bias if node.target in _WITH_BIAS else None
        product = self._call(node, node.target, *halves, *settings(node))
        result = self._scaled(node, self._call(node, from_half, product, self._float), -exponent)
        if bias is not None:
            if node.target is aten.conv2d.default:
                bias = self._call(node, aten.unsqueeze.default, self._call(node, aten.unsqueeze.default, bias, 1), 2)
            result = self._call(node, aten.add.Tensor, result, bias)
        node.replace_all_uses_with(result)
        self._program.graph.erase_node(node)

    def _half(self, value: fx.Node, exponent: int, before: fx.Node) -> fx.Node:
        """The value · 2^exponent in half, ready before the first node that needs it."""
        key = value, exponent
        if key not in self._halves:
            self._halves[key] = self._made_half(value, exponent, before)
        return self._halves[key]

    def _made_half(self, value: fx.Node, exponent: int, before: fx.Node) -> fx.Node:
        if is_constant(value):
            weights = self._program.constant(path_of(value), self._program.value_of(value).half())
            weights.meta["half"] = True
            return weights
        if value.target is aten.permute.default:
            # Half as many bytes to move, and under a turned constant lies one that can be stored as half.
            source: Any = value.args[0]
            return self._call(before, value.target, self._half(source, exponent, before), value.args[1])
        return self._call(before, to_half, self._scaled(before, value, exponent))

    def _scaled(self, before: fx.Node, value: fx.Node, exponent: int) -> fx.Node:
        return self._call(before, aten.mul.Tensor, value, 2.0**exponent) if exponent else value

    def _call(self, before: fx.Node, target: Any, *args: Any) -> fx.Node:
        return self._program.insert(before, target, *args)
