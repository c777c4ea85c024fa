"""Products in fp16 between float32 values: y = float32(fp16(A) · fp16(x)) + b. Everything else stays in float32.

Only convolutions and matrix products change, forward and transposed. They read their data through a cast and their
weights as fp16 constants. Their results are cast back at once, and the bias is added in float32. A sum that is written
as a convolution, such as the patch norm, stays in float32.

The smallest positive fp16 number is 6e-8. Cotangents of deep networks can be smaller, so each is multiplied by a power
of two before the cast and divided by it afterwards. Both are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters.operators import Trait, from_half, has_trait, to_half
from bcos_sdk.exporters.program import Program, bind, is_constant, is_uniform, path_of

__all__ = ["in_half", "is_cotangent", "layer_of", "operands", "products", "settings"]

aten = torch.ops.aten

_ROOT = "(the root module)"


def in_half(program: Program, exponents: Mapping[fx.Node, int], keep: Collection[str] = ()) -> Program:
    """A copy of the program whose products run in fp16, except those of the layers in `keep`.

    `exponents` has the power of two by which the cotangents of each product are scaled.
    """
    half = program.copy()
    rewriter = _Rewriter(half)
    for original, node in zip(products(program), products(half), strict=True):
        if layer_of(node) not in keep:
            rewriter.rewrite(node, exponents.get(original, 0))
    half.clean()
    return half


def products(program: Program) -> list[fx.Node]:
    """Every convolution and matrix product that may run in fp16, in the order of the computation."""
    return [node for node in program.graph.nodes if has_trait(node, Trait.PRODUCT) and not _is_sum(program, node)]


def layer_of(node: fx.Node) -> str:
    """The layer that a node belongs to. An operator and its transpose share it, and so have the same precision."""
    return path_of(node) or _ROOT


def operands(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The two factors of a product."""
    first, second, *_ = node.args
    assert isinstance(first, fx.Node)
    assert isinstance(second, fx.Node)
    return first, second


def settings(node: fx.Node) -> tuple[Any, ...]:
    """The arguments of a product after its factors, such as the stride, without the bias."""
    return (None, *node.args[3:]) if has_trait(node, Trait.HAS_BIAS) else node.args[2:]


def is_cotangent(value: fx.Node) -> bool:
    """Whether the transposed pass computes the value."""
    return bool(_source(value).meta.get("transposed"))


def _is_sum(program: Program, node: fx.Node) -> bool:
    """Whether the product only sums: all its weights are equal, it is ⟨x, x⟩, or it reads squares."""
    first, second = map(_source, operands(node))
    if aten.square.default in (first.target, second.target):
        return True
    for factor in (first, second):
        if is_constant(factor):
            return is_uniform(program.value_of(factor))
    return first is second


def _source(value: fx.Node) -> fx.Node:
    """The value before it was permuted or reshaped."""
    while has_trait(value, Trait.REORDERS):
        (value,) = value.all_input_nodes
    return value


class _Rewriter:
    """Converts products of one program to fp16. Each value is cast once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._float = program.inputs[0].meta["val"].dtype
        self._halves: dict[tuple[fx.Node, int], fx.Node] = {}

    def rewrite(self, node: fx.Node, exponent: int) -> None:
        halves = [self._half(one, exponent if is_cotangent(one) else 0, node) for one in operands(node)]
        bias: Any = bind(node).bias if has_trait(node, Trait.HAS_BIAS) else None
        product = self._call(node, node.target, *halves, *settings(node))
        result = self._scaled(node, self._call(node, from_half, product, self._float), -exponent)
        if bias is not None:
            if node.target is aten.conv2d.default:
                bias = self._call(node, aten.unsqueeze.default, self._call(node, aten.unsqueeze.default, bias, 1), 2)
            result = self._call(node, aten.add.Tensor, result, bias)
        node.replace_all_uses_with(result)
        self._program.graph.erase_node(node)

    def _half(self, value: fx.Node, exponent: int, before: fx.Node) -> fx.Node:
        """The value · 2^exponent in fp16; made before the first node that reads it, then reused."""
        key = value, exponent
        if key not in self._halves:
            self._halves[key] = self._make_half(value, exponent, before)
        return self._halves[key]

    def _make_half(self, value: fx.Node, exponent: int, before: fx.Node) -> fx.Node:
        if is_constant(value):
            weights = self._program.constant(path_of(value), self._program.value_of(value).half())
            weights.meta["half"] = True
            return weights
        if value.target is aten.permute.default:
            # Cast before the permutation: it moves half the bytes, and a permuted constant is stored in fp16.
            source: Any = value.args[0]
            return self._call(before, value.target, self._half(source, exponent, before), value.args[1])
        return self._call(before, to_half, self._scaled(before, value, exponent))

    def _scaled(self, before: fx.Node, value: fx.Node, exponent: int) -> fx.Node:
        return self._call(before, aten.mul.Tensor, value, 2.0**exponent) if exponent else value

    def _call(self, before: fx.Node, target: Any, *args: Any) -> fx.Node:
        return self._program.insert(before, target, *args)
