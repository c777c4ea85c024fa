"""s · |wᵀx| wᵀx / n = |w'ᵀx| w'ᵀx / n with w' = sign(s) · sqrt|s| · w: a norm's scale goes into the weights.

The B-cos transform with B = 2 is odd and of degree two in w, and its patch norm n does not contain w. So an
uncentred batch norm behind it, a product with one constant per channel, costs nothing. With MaxOut the largest
unit must stay the largest, so there s must be positive. (For other B the epsilon beside |cos| spoils the identity.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters._ops import reshape_sample
from bcos_sdk.exporters._program import Program, bind, is_constant, path_of, sample_shape
from bcos_sdk.exporters.simplify._merge_scales import constant_scale

__all__ = ["fold_bcos_scale"]

aten = torch.ops.aten


def fold_bcos_scale(program: Program) -> int:
    folded = 0
    for node in list(program.graph.nodes):
        scaled = constant_scale(program, node)
        if scaled is None or len(scaled[0].users) != 1:
            continue
        transform, factor = scaled
        per_channel = _per_channel(factor, node)
        linear = _linear_of_bcos_square(transform)
        convolution = None if linear is None else _convolution(linear)
        if per_channel is None or convolution is None:
            continue
        weight = bind(convolution).weight
        if not is_constant(weight) or len(weight.users) != 1:
            continue
        units = len(program.value_of(weight)) // len(per_channel)
        if units > 1 and not bool((per_channel > 0).all()):
            continue
        root = (per_channel.abs().sqrt() * per_channel.sign()).repeat_interleave(units).view(-1, 1, 1, 1)
        constant = program.constant(path_of(weight), program.value_of(weight) * root)
        convolution.update_arg(1, constant)
        node.replace_all_uses_with(transform)
        program.graph.erase_node(node)
        folded += 1
    program.clean()
    return folded


def _per_channel(factor: Tensor, node: fx.Node) -> Tensor | None:
    """The factor as one number per channel of a feature map, if that is what it is."""
    channels, *window = sample_shape(node) or (0,)
    if len(window) != 2 or factor.numel() not in (1, channels) or factor.ndim not in (0, 3, 4):
        return None
    if factor.ndim and factor.shape[-3] != factor.numel():
        return None
    return factor.reshape(-1).expand(channels).to(node.meta["val"].dtype)


def _linear_of_bcos_square(node: fx.Node) -> fx.Node | None:
    """wᵀx, where the node is wᵀx · (|wᵀx| / n) and nothing else reads wᵀx, |wᵀx| or the quotient."""
    if node.target is not aten.mul.Tensor:
        return None
    for linear, scale in (node.args, node.args[::-1]):
        quotient = _undetached(scale)
        if isinstance(linear, fx.Node) and isinstance(quotient, fx.Node) and quotient.target is aten.div.Tensor:
            absolute = _undetached(quotient.args[0])
            if getattr(absolute, "target", None) is aten.abs.default and _undetached(absolute.args[0]) is linear:
                alone = _readers(quotient) == {node} and _readers(absolute) == {quotient}
                return linear if alone and _readers(linear) == {node, absolute} else None
    return None


def _readers(node: fx.Node) -> set[fx.Node]:
    """Who reads the value, with or without a mark between."""
    readers = set()
    for user in node.users:
        readers |= _readers(user) if user.target is aten.detach.default else {user}
    return readers


def _convolution(linear: fx.Node) -> fx.Node | None:
    """The convolution that the value comes from, through MaxOut if there is any."""
    source: Any = linear
    if _is_getitem_of_max(source):
        source = source.args[0].args[0]
        if source.target is not reshape_sample or len(source.users) != 1:
            return None
        source = source.args[0]
    if source.target is not aten.conv2d.default or bind(source).bias is not None:
        return None
    return source if source is linear or len(source.users) == 1 else None


def _is_getitem_of_max(node: fx.Node) -> bool:
    source = node.args[0] if node.args else None
    return isinstance(source, fx.Node) and source.target is aten.max.dim


def _undetached(value: Any) -> Any:
    while isinstance(value, fx.Node) and value.target is aten.detach.default:
        value = value.args[0]
    return value
