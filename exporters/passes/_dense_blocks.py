"""Dense blocks: each layer reads all earlier features x_1 … x_l, concatenated, with a constant scale s per channel.

share_norms  conv(s · x, w) = conv(x, w · s) and ‖s · x‖² = Σ_j conv(x_j², s_j²), with x_j² shared by all layers
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.exporters.passes._scales import constant_scale, per_channel, readers
from bcos_sdk.exporters.program import Program, bind, is_constant, path_of, sample_shape

__all__ = ["share_norms"]

aten = torch.ops.aten


def share_norms(program: Program) -> int:
    """conv(s · x, w) = conv(x, w · s) and ‖s · x‖² = Σ_j conv(x_j², s_j²): no layer reads or writes s · x.

    Otherwise each layer of a dense block writes s · x and reads it twice, for all features of the earlier layers. A
    convolution with one output for each layer sums the squares of a new feature x_j for all layers that read it.
    """
    rewritten = 0
    for block in list(_blocks(program)):
        _share_squares(program, block)
        for layer in block:
            _fold_into_weights(program, layer)
            rewritten += 1
    program.clean()
    return rewritten


@dataclass(frozen=True)
class _Layer:
    """A layer that reads s · x by convolutions, and by a sum of squares over all channels."""

    features: fx.Node
    parts: tuple[fx.Node, ...]
    scale: Tensor
    convolutions: tuple[fx.Node, ...]
    norm: fx.Node


def _blocks(program: Program) -> Iterator[list[_Layer]]:
    """Yield at least two layers whose parts continue those of the layer before, in the order of the computation."""
    block: list[_Layer] = []
    for layer in filter(None, (_layer_of(program, node) for node in list(program.graph.nodes))):
        if block and layer.parts[: len(block[-1].parts)] != block[-1].parts:
            if len(block) > 1:
                yield block
            block = []
        block.append(layer)
    if len(block) > 1:
        yield block


def _layer_of(program: Program, node: fx.Node) -> _Layer | None:
    scaled = constant_scale(program, node)
    scale = None if scaled is None else per_channel(scaled[1], node)
    if scaled is None or scale is None:
        return None
    convolutions: list[fx.Node] = []
    norms: list[fx.Node] = []
    for reader in readers(node):
        if _has_weights_of_its_own(reader, node):
            convolutions.append(reader)
        elif reader.target is aten.square.default and all(map(_is_sum_over_channels, reader.users)):
            norms += reader.users
        else:
            return None
    if not convolutions or len(norms) != 1:
        return None
    return _Layer(scaled[0], tuple(_parts(scaled[0])), scale, tuple(convolutions), norms[0])


def _has_weights_of_its_own(reader: fx.Node, data: fx.Node) -> bool:
    if reader.target is not aten.conv2d.default:
        return False
    a = bind(reader)
    return a.input is data and is_constant(a.weight) and len(a.weight.users) == 1 and a.groups == 1


def _is_sum_over_channels(node: fx.Node) -> bool:
    return node.target is aten.sum.dim_IntList and list(bind(node).dim) == [1] and bool(bind(node).keepdim)


def _parts(features: fx.Node) -> Iterator[fx.Node]:
    """The values that are concatenated along the channels, also by nested concatenations."""
    if features.target is aten.cat.default and bind(features).dim == 1:
        for part in bind(features).tensors:
            yield from _parts(part)
    else:
        yield features


def _share_squares(program: Program, block: list[_Layer]) -> None:
    """Replace the norm of each layer by its channel of one running sum over the parts."""
    total: Any = None
    known = 0
    for number, layer in enumerate(block):
        start = sum(sample_shape(part)[0] for part in layer.parts[:known])
        for part in layer.parts[known:]:
            end = start + sample_shape(part)[0]
            square = program.compute(layer.norm, aten.square.default, part)
            weights = torch.zeros(len(block), end - start, dtype=layer.scale.dtype)  # 0 for norms that are complete
            for later in range(number, len(block)):
                weights[later] = block[later].scale[start:end].square()
            kernel = program.constant(path_of(layer.norm), weights.reshape(*weights.shape, 1, 1))
            summed = program.compute(layer.norm, aten.conv2d.default, square, kernel)
            total = summed if total is None else program.compute(layer.norm, aten.add.Tensor, total, summed)
            start = end
        known = len(layer.parts)
        program.substitute(layer.norm, program.compute(layer.norm, aten.slice.Tensor, total, 1, number, number + 1))


def _fold_into_weights(program: Program, layer: _Layer) -> None:
    for convolution in layer.convolutions:
        weight = bind(convolution).weight
        folded = program.value_of(weight) * layer.scale.view(1, -1, 1, 1)
        convolution.update_arg(0, layer.features)
        convolution.update_arg(1, program.constant(path_of(weight), folded))
