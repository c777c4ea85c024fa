"""Choose the layers that run in fp16: all, except as few as possible that stay in float32 so that the limits hold.

Layers are ranked by the error that fp16 causes in each. A bisection finds the shortest prefix of the ranking that must
stay in float32. Each step writes the graphs of the bundle and measures them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from bcos_sdk.errors import ExportError, ParityError
from bcos_sdk.exporters.passes._half import layer_of, products
from bcos_sdk.exporters.passes._half_analysis import HalfAnalysis
from bcos_sdk.exporters.program import Program

__all__ = ["choose_half"]

Figures = TypeVar("Figures")


def choose_half(
    explain: Program, images: Tensor, attempt: Callable[[HalfAnalysis, Sequence[str]], Figures]
) -> tuple[tuple[str, ...], Figures]:
    """The layers that stay in float32, in the order of the computation, and the figures of the last graphs written.

    `attempt` writes and measures the graphs with the given layers in float32. A `ParityError` means: more are needed.
    """
    analysis = HalfAnalysis(explain, images)

    def figures_with(kept: Sequence[str]) -> Figures | None:
        try:
            return attempt(analysis, kept)
        except ParityError:
            return None

    layers = list(dict.fromkeys(layer_of(node) for node in products(explain) if not node.meta.get("transposed")))
    too_few, enough = len(analysis.must_stay), len(layers)
    kept: Sequence[str] = sorted(analysis.must_stay, key=layers.index)
    figures = figures_with(kept) if too_few < enough else None
    if figures is None:
        ranking = analysis.ranking()
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            kept = ranking[:middle]
            figures = figures_with(kept)
            too_few, enough = (middle, enough) if figures is None else (too_few, middle)
        if enough == len(layers):
            raise ExportError(
                f"fp16 gains nothing for this module: all {len(layers)} of its layers would have to stay in float32",
                hint="Export it with --precision fp32 (precision='fp32').",
            )
        if figures is None:
            kept = ranking[:enough]
            figures = figures_with(kept)
            assert figures is not None, "the same graphs passed the same check before"
    return tuple(sorted(kept, key=layers.index)), figures
