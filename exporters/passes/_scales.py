"""Simplify scales: products and quotients with constants, per channel or per location.

merge_scales          (x · a) · b = x · (a·b) and x / a = x · (1/a), for constants a and b
fold_bcos_scale       s · |wᵀx| wᵀx / n = |w'ᵀx| w'ᵀx / n with w' = sign(s) · sqrt|s| · w
multiply_reciprocals  a / d = a · (1/d), where d has fewer elements than a
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.program import (
    Program,
    bind,
    is_constant,
    is_floating,
    path_of,
    reshape_sample,
    sample_shape,
)

__all__ = ["constant_scale", "fold_bcos_scale", "merge_scales", "multiply_reciprocals", "per_channel", "readers"]

aten = torch.ops.aten


def merge_scales(program: Program) -> int:
    """(x · a) · b = x · (a·b) and x / a = x · (1/a): one product instead of several."""
    merged = 0
    for node in list(program.graph.nodes):
        outer = constant_scale(program, node)
        if outer is None:
            continue
        source, factor = outer
        inner = constant_scale(program, source)
        if inner is not None and len(source.users) == 1:
            source, factor = inner[0], inner[1] * factor
        elif node.target is aten.mul.Tensor:
            continue
        operand: Any = program.constant(path_of(node), factor) if factor.ndim else factor.item()
        program.replace(node, aten.mul.Tensor, source, operand)
        merged += 1
    program.clean()
    return merged


def constant_scale(program: Program, node: fx.Node) -> tuple[fx.Node, Tensor] | None:
    """x and the factor, if the node is x · a or x / a with a constant a."""
    if node.target not in (aten.mul.Tensor, aten.div.Tensor) or not is_floating(node):
        return None
    left, right = node.args
    if node.target is aten.mul.Tensor and _constant_value(program, left) is not None:
        left, right = right, left
    factor = _constant_value(program, right)
    if factor is None or not isinstance(left, fx.Node) or is_constant(left):
        return None
    return left, factor if node.target is aten.mul.Tensor else 1 / factor


def _constant_value(program: Program, operand: Any) -> Tensor | None:
    if isinstance(operand, (int, float)):
        return torch.tensor(operand, dtype=torch.float64)
    return program.value_of(operand) if is_constant(operand) else None


def fold_bcos_scale(program: Program) -> int:
    """s · |wᵀx| wᵀx / n = |w'ᵀx| w'ᵀx / n with w' = sign(s) · sqrt|s| · w: fold a norm's scale into the weights.

    The B-cos transform with B = 2 is odd and of degree two in w, and its patch norm n does not depend on w. So the
    weights can absorb an uncentred batch norm after it, which is one constant factor s per channel. With MaxOut s must
    be positive, so that the largest unit stays the largest. For other B the epsilon added to |cos| breaks the identity.
    """
    folded = 0
    for node in list(program.graph.nodes):
        scaled = constant_scale(program, node)
        if scaled is None or len(scaled[0].users) != 1:
            continue
        transform, factor = scaled
        scale = per_channel(factor, node)
        linear = _linear_of_bcos_square(transform)
        found = None if linear is None else _convolution(linear)
        if scale is None or found is None:
            continue
        convolution, before, after = found
        weight = bind(convolution).weight
        if not is_constant(weight) or len(weight.users) != 1:
            continue
        if before * after > 1 and not bool((scale > 0).all()):
            continue
        root = (scale.abs().sqrt() * scale.sign()).repeat_interleave(after).repeat(before).view(-1, 1, 1, 1)
        constant = program.constant(path_of(weight), program.value_of(weight) * root)
        convolution.update_arg(1, constant)
        node.replace_all_uses_with(transform)
        program.graph.erase_node(node)
        folded += 1
    program.clean()
    return folded


def per_channel(factor: Tensor, node: fx.Node) -> Tensor | None:
    """The factor as one number per channel of a feature map; None if it has another shape."""
    channels, *window = sample_shape(node) or (0,)
    if len(window) != 2 or factor.numel() not in (1, channels) or factor.ndim not in (0, 3, 4):
        return None
    if factor.ndim and factor.shape[-3] != factor.numel():
        return None
    return factor.reshape(-1).expand(channels).to(node.meta["val"].dtype)


def _linear_of_bcos_square(node: fx.Node) -> fx.Node | None:
    """wᵀx, if the node is wᵀx · (|wᵀx| / n) and no other node reads wᵀx, |wᵀx| or the quotient."""
    if node.target is not aten.mul.Tensor:
        return None
    for linear, scale in (node.args, node.args[::-1]):
        quotient = _undetached(scale)
        if isinstance(linear, fx.Node) and isinstance(quotient, fx.Node) and quotient.target is aten.div.Tensor:
            absolute = _undetached(quotient.args[0])
            if getattr(absolute, "target", None) is aten.abs.default and _undetached(absolute.args[0]) is linear:
                alone = readers(quotient) == {node} and readers(absolute) == {quotient}
                return linear if alone and readers(linear) == {node, absolute} else None
    return None


def readers(node: fx.Node) -> set[fx.Node]:
    """The nodes that read the value, directly or through `detach`."""
    found = set()
    for user in node.users:
        found |= readers(user) if user.target is aten.detach.default else {user}
    return found


def _convolution(linear: fx.Node) -> tuple[fx.Node, int, int] | None:
    """The convolution without bias that computes the value, possibly followed by MaxOut; None if there is none.

    Two numbers say how MaxOut reads the channels of the convolution: as [units, C] or as [C, units]. They are the
    lengths of the axes before and after C.
    """
    source: Any = linear
    before = after = 1
    if _is_largest(source):
        largest = source.args[0]
        split = bind(largest).self
        if split.target is not reshape_sample or len(split.users) != 1:
            return None
        source, shape = split.args[0], sample_shape(split)
        axis = bind(largest).dim % (len(shape) + 1) - 1
        if axis not in (0, 1) or shape[2:] != sample_shape(source)[1:]:
            return None
        before, after = (shape[0], 1) if axis == 0 else (1, shape[1])
    if source.target is not aten.conv2d.default or bind(source).bias is not None:
        return None
    return (source, before, after) if source is linear or len(source.users) == 1 else None


def _is_largest(node: fx.Node) -> bool:
    """Whether the node has the values of a maximum, not its indices."""
    source = node.args[0] if node.args else None
    return isinstance(source, fx.Node) and source.target is aten.max.dim and bool(node.args[1] == 0)


def _undetached(value: Any) -> Any:
    while isinstance(value, fx.Node) and value.target is aten.detach.default:
        value = value.args[0]
    return value


def multiply_reciprocals(program: Program) -> int:
    """a / d = a · (1/d), where d has one channel and a has many: divide once per location, not once per channel."""
    rewritten = 0
    for node in list(program.graph.nodes):
        if node.target is not aten.div.Tensor:
            continue
        numerator, denominator = node.args
        if not isinstance(denominator, fx.Node) or denominator.op == "get_attr":
            continue
        if prod(sample_shape(denominator)) >= prod(sample_shape(node)):
            continue
        with program.graph.inserting_before(node):
            inverse = program.graph.call_function(aten.reciprocal.default, (denominator,))
        inverse.meta = {**denominator.meta, "path": path_of(node)}
        program.replace(node, aten.mul.Tensor, numerator, inverse)
        rewritten += 1
    return rewritten
