"""avg_poolᵀ with kernel = stride: windows do not meet, so every value is divided by k² and repeated over its own."""

from __future__ import annotations

from bcos_sdk.exporters._ops import avg_pool_transpose, repeat_average
from bcos_sdk.exporters._program import Program, bind

__all__ = ["repeat_averages"]


def repeat_averages(program: Program) -> int:
    repeated = 0
    for node in list(program.graph.find_nodes(op="call_function", target=avg_pool_transpose)):
        a = bind(node)
        if a.kernel == a.stride and a.padding == (0, 0):
            program.replace(node, repeat_average, a.ct, a.kernel, a.size)
            repeated += 1
    return repeated
