"""conv(x, w)ᵀ at stride one = conv(·, w') with w' flipped in space and its channels swapped; its padding is k − 1 − p.

CPU runtimes have faster convolutions than transposed ones. The weights are turned inside the graph, where the
runtime folds the turn into its own copy: the weights file keeps one. Very large weights are left alone, since turning
them would take longer than loading all the rest.
"""

from __future__ import annotations

from math import prod

from bcos_sdk.exporters._ops import conv_transpose, flipped_conv
from bcos_sdk.exporters._program import Program, bind, shape_of

__all__ = ["flip_convolutions"]

_LARGEST = 1 << 24


def flip_convolutions(program: Program) -> int:
    flipped = 0
    for node in list(program.graph.find_nodes(op="call_function", target=conv_transpose)):
        a = bind(node)
        kernel = shape_of(a.weight)[2:]
        padding = tuple(d * (k - 1) - p for k, p, d in zip(kernel, a.padding, a.dilation, strict=True))
        is_small = prod(shape_of(a.weight)) <= _LARGEST
        if a.stride == (1, 1) and min(padding) >= 0 and is_small:
            program.replace(node, flipped_conv, a.ct, a.weight, padding, a.dilation, a.groups)
            flipped += 1
    return flipped
