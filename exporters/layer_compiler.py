"""torch module → the programs for its inner layers: features, one explain program per layer, and relay.

features       image → logits and the output a of each layer
explain layer  (image, positions, directions) → ⟨direction, a⟩ at the position, explained by pixels: rows of W_{1→l}
relay          (image, targets) → the explanation of the logit, and a ⊙ W_{l→L} with the bias terms above each layer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import fx, nn

from bcos_sdk.contract import (
    BIAS_TERMS,
    CHANNELS,
    CONTRIBUTIONS,
    DIRECTIONS,
    EXPLAIN_OUTPUTS,
    LAYER_OUTPUTS,
    MAGNITUDE,
    PLACES,
    POSITIONS,
    VALUE,
    WEIGHTS,
    Layout,
    Port,
    layer_ports,
)
from bcos_sdk.errors import UnknownLayerError
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import explain_targets, simplify
from bcos_sdk.exporters.operators import TRANSPOSES, resolve_positions, seed_cotangents, stack_terms
from bcos_sdk.exporters.passes import EXPLAIN_PASSES, FORWARD_PASSES
from bcos_sdk.exporters.program import Program, reshape_sample, sample_shape
from bcos_sdk.exporters.transpose import Transposition, carries_everything, explained_nodes

__all__ = ["CompiledLayer", "CompiledLayers", "channels_and_positions", "compile_layers"]

aten = torch.ops.aten
_LAYOUTS = (Layout.GRID, Layout.ROWS)


@dataclass(frozen=True)
class CompiledLayer:
    """One layer: its explain program in both layouts, its bias terms, and those above it if it carries everything."""

    path: str
    shape: tuple[int, ...]
    explain: Program
    explain_rows: Program
    bias_terms: tuple[str, ...]
    complete: bool
    bias_above: tuple[str, ...]
    ports: tuple[Port, Port, Port]


@dataclass(frozen=True)
class CompiledLayers:
    features: Program
    relay: Program
    relay_rows: Program
    layers: tuple[CompiledLayer, ...]

    @property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for layer in self.layers for port in layer.ports)


def channels_and_positions(shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """The number of channels and the axes of positions: [C, h, w], [tokens, C] or [C]."""
    if len(shape) == 3:
        return shape[0], tuple(shape[1:])
    return shape[-1], tuple(shape[:-1])


def compile_layers(
    module: nn.Module,
    size: tuple[int, int],
    layers: Sequence[str],
    *,
    channels: int = CHANNELS,
    output: str | None = None,
) -> CompiledLayers:
    """Capture the module with the outputs of the layers as results, and transpose from them and through them."""
    forward = capture(module, size, channels=channels, output=output, layers=layers)
    explained = explained_nodes(forward)
    for path, node in zip(layers, forward.results[1:], strict=True):
        if node not in explained:
            raise UnknownLayerError(
                f"layer {path!r} cannot be explained: no path without detach leads from the image through it to the "
                "logits",
                source=path,
                hint="Name a layer whose output the logits depend on: `bcos-sdk layers MODEL` lists them.",
            )
    simplify(forward, FORWARD_PASSES, (), {})
    complete = [carries_everything(forward, node) for node in forward.results[1:]]
    shapes = [sample_shape(node) for node in forward.results[1:]]
    relays = {layout: _relay(forward, layout, complete) for layout in _LAYOUTS}
    above = relays[Layout.GRID][1]
    ports = [layer_ports(i, shape, max(1, len(above[i]))) for i, shape in enumerate(shapes)]
    compiled = []
    for i, path in enumerate(layers):
        programs = {layout: _explain_layer(forward, i, layout) for layout in _LAYOUTS}
        (grid, terms), (rows, _) = programs[Layout.GRID], programs[Layout.ROWS]
        compiled.append(CompiledLayer(path, shapes[i], grid, rows, terms, complete[i], above[i], ports[i]))
    features = forward.copy()
    features.outputs = (forward.outputs[0], *(one[0].name for one in ports))
    features.remove_detach()
    return CompiledLayers(features, relays[Layout.GRID][0], relays[Layout.ROWS][0], tuple(compiled))


def _explain_layer(forward: Program, index: int, layout: Layout) -> tuple[Program, tuple[str, ...]]:
    program = forward.copy()
    program.layout = layout
    (image,) = program.inputs
    output = program.results[1 + index]
    channels, places = channels_and_positions(sample_shape(output))
    count = prod(places)
    with program.graph.inserting_after(image):
        directions = program.graph.placeholder(DIRECTIONS.name)
    with program.graph.inserting_after(image):
        positions = program.graph.placeholder(POSITIONS.name)
    directions.meta["sample"] = (channels,)
    t = Transposition(program, TRANSPOSES)
    t.at(output)
    last = t.axis(1)
    activations = _channels_first(t, output, channels, count)
    values = _scores(t, directions, activations, count)
    found = t.call(resolve_positions, values, positions)
    where = t.call(seed_cotangents, found, count, output.meta["val"].dtype)
    value = t.call(aten.sum.dim_IntList, t.call(aten.mul.Tensor, values, where), [last])
    sizes = _scores(t, t.call(aten.abs.default, directions), t.call(aten.abs.default, activations), count)
    magnitude = t.call(aten.sum.dim_IntList, t.call(aten.mul.Tensor, sizes, where), [last])
    tokens = len(places) == 1
    of_channels = t.call(aten.unsqueeze.default, directions, last if tokens else last + 1)
    of_places = t.call(aten.unsqueeze.default, where, last + 1 if tokens else last)
    seed = t.reshape(t.call(aten.mul.Tensor, of_channels, of_places), sample_shape(output))
    weights = t.run(seed, start=output)
    t.at(image)
    product = t.call(aten.mul.Tensor, weights, t.broadcast_over_targets(image))
    computed = {
        PLACES: found,
        VALUE: value,
        MAGNITUDE: magnitude,
        WEIGHTS: weights,
        CONTRIBUTIONS: t.call(aten.sum.dim_IntList, product, [last]),
        BIAS_TERMS: t.call(stack_terms, list(t.ledger.values()), where),
    }
    _finish(program, {port.name: computed[port] for port in LAYER_OUTPUTS})
    return program, tuple(t.ledger) or ("none",)


def _channels_first(t: Transposition, output: fx.Node, channels: int, count: int) -> fx.Node:
    """[batch, …] → [batch, channels, positions]."""
    if len(sample_shape(output)) == 2:
        return t.call(aten.permute.default, output, [0, 2, 1])
    return t.call(reshape_sample, output, (channels, count), 1)


def _scores(t: Transposition, directions: fx.Node, activations: fx.Node, count: int) -> fx.Node:
    """⟨direction, activation⟩ of each target at each position: […, positions]."""
    if t.program.layout is Layout.GRID:
        return t.call(aten.matmul.default, directions, activations)
    product = t.call(aten.matmul.default, t.call(aten.unsqueeze.default, directions, 1), activations)
    return t.reshape(product, (count,))


def _relay(forward: Program, layout: Layout, complete: Sequence[bool]) -> tuple[Program, list[tuple[str, ...]]]:
    program = forward.copy()
    taps = program.results[1:]
    t, computed = explain_targets(program, layout, watch=taps)
    outputs = {port.name: computed[port] for port in EXPLAIN_OUTPUTS}
    above = []
    for index, node in enumerate(taps):
        cotangent, ledger = t.passed[node]
        terms = ledger if complete[index] else {}
        above.append(tuple(terms))
        t.at(node)
        features = t.call(aten.mul.Tensor, cotangent, t.broadcast_over_targets(node))
        bias = t.call(stack_terms, list(terms.values()), computed[BIAS_TERMS])
        for port, result in zip(layer_ports(index, (), 1), (node, features, bias), strict=True):
            outputs[port.name] = result
    _finish(program, outputs)
    return program, above


def _finish(program: Program, outputs: dict[str, fx.Node]) -> None:
    program.outputs = tuple(outputs)
    (output,) = program.graph.find_nodes(op="output")
    output.args = (tuple(outputs.values()),)
    program.remove_detach()
    simplify(program, EXPLAIN_PASSES, (), {})
