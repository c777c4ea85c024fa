"""What an engine is built from: a graph of a bundle, changed for a GPU. Bundles keep the graph that suits CPUs.

The explain graph convolves with flipped copies of weights, which CPUs compute faster. A flipped copy is another tensor
for TensorRT, so that a plan would hold most weights twice. Here each becomes a transposed convolution with the weights
of the forward pass:

    conv(x, w') at stride one, w' = w flipped in space with its channels swapped  =  conv(·, w)ᵀ of x
"""

from __future__ import annotations

from collections.abc import Mapping

from bcos_sdk.backends._pixel_input import pixel_encoding, with_pixel_input
from bcos_sdk.bundle import EditableGraph, Node, node

__all__ = ["engine_source"]


def engine_source(contents: bytes, channels: str | None = None) -> bytes:
    """The ONNX file that TensorRT parses, from that of the bundle. It reads the same weights file.

    `channels` is the manifest's name of how pixels are encoded; with it, the file takes pixels.
    """
    shared = _share_flipped_weights(contents)
    encoding = None if channels is None else pixel_encoding(channels)
    return shared if encoding is None else with_pixel_input(shared, encoding)


def _share_flipped_weights(contents: bytes) -> bytes:
    """Replace each convolution with a flipped tensor of the graph by a transposed convolution with the tensor."""
    graph = EditableGraph(contents)
    makers = {output: one for one in graph.nodes for output in one.outputs}
    flips: set[str] = set()
    changed = []
    for one in graph.nodes:
        replaced = _transposed(graph, makers, one, flips) if one.operator == "Conv" else None
        changed.append(replaced or one)
    graph.nodes = changed
    graph.remove_unused(flips)
    return graph.contents()


def _transposed(graph: EditableGraph, makers: Mapping[str, Node], conv: Node, flips: set[str]) -> Node | None:
    """The transposed convolution that equals the convolution, or None. `flips` gets the values it no longer reads."""
    if len(conv.inputs) != 2 or set(conv.ints.get("strides", (1,))) != {1}:
        return None
    data, weight = conv.inputs
    group = conv.ints.get("group", (1,))[0]
    found = _unflipped(graph, makers, weight, group)
    if found is None:
        return None
    tensor, passed = found
    kernel = graph.shape_of(tensor)[2:]
    dilation = conv.ints.get("dilations", (1,) * len(kernel))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)] * 2
    pads = [full - pad for full, pad in zip(reach, conv.ints.get("pads", (0,) * len(reach)), strict=True)]
    if min(pads) < 0:
        return None
    flips |= set(passed)
    strides = [1] * len(kernel)
    return node(
        "ConvTranspose", [data, tensor], conv.outputs[0], dilations=dilation, group=group, pads=pads, strides=strides
    )


def _unflipped(
    graph: EditableGraph, makers: Mapping[str, Node], weight: str, group: int
) -> tuple[str, list[str]] | None:
    """The tensor of which `weight` is the flipped form for this many groups, and the values in between."""
    passed = [weight]
    one = makers.get(weight)
    ends = None if one is None else _reversal(graph, one)
    if one is not None and ends is not None:
        weight = one.inputs[0]
        passed.append(weight)
    swapped = _unswapped(graph, makers, weight, group)
    if swapped is not None:
        weight = swapped[0]
        passed += swapped[1]
    if weight not in graph.tensors or len(passed) == 1 or len(graph.shape_of(weight)) != 4:
        return None
    outputs, inputs, *kernel = graph.shape_of(weight)
    # A kernel of one element needs no reversal, and a group with one channel on both sides no swap.
    needs_swap = group == 1 or inputs > 1 or outputs > group
    is_reversed = kernel == [1, 1] if ends is None else ends == tuple(-side - 1 for side in kernel)
    complete = is_reversed and (swapped is not None) == needs_swap
    return (weight, passed) if complete else None


def _unswapped(
    graph: EditableGraph, makers: Mapping[str, Node], weight: str, group: int
) -> tuple[str, list[str]] | None:
    """The value whose input and output channels were swapped in each group, and the values in between."""
    last = makers.get(weight)
    if last is None:
        return None
    if last.operator == "Transpose" and last.ints.get("perm") == (1, 0, 2, 3) and group == 1:
        return last.inputs[0], [last.inputs[0]]
    swap = makers.get(last.inputs[0]) if last.operator == "Reshape" else None
    if swap is None or swap.operator != "Transpose" or swap.ints.get("perm") != (0, 2, 1, 3, 4):
        return None
    first = makers.get(swap.inputs[0])
    if first is None or first.operator != "Reshape" or first.inputs[0] not in graph.tensors:
        return None
    source = first.inputs[0]
    outputs, inputs, *kernel = graph.shape_of(source)
    split, joined = (graph.integers_of(one.inputs[1]) for one in (first, last))
    fits = split == (group, outputs // group, inputs, *kernel) and joined == (group * inputs, outputs // group, *kernel)
    return (source, [last.inputs[0], swap.inputs[0], source]) if fits else None


def _reversal(graph: EditableGraph, one: Node) -> tuple[int, ...] | None:
    """The ends of a slice that reverses rows and columns, the axes 2 and 3; None if the node is another."""
    if one.operator != "Slice" or len(one.inputs) != 5:
        return None
    starts, ends, axes, steps = map(graph.integers_of, one.inputs[1:])
    return ends if starts == (-1, -1) and axes == (2, 3) and steps == (-1, -1) else None
