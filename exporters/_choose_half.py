"""Which layers run in half: all of them, but for the fewest that must stay in float so that the limits hold.

Layers are ranked by the harm that half does to each by itself, and of that ranking the shortest beginning is searched
by bisection. Every step is a set of graphs, judged as it would be shipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from torch import Tensor

from bcos_sdk.bundle import Parity
from bcos_sdk.errors import ExportError, ParityError
from bcos_sdk.exporters._compile import Compiled
from bcos_sdk.exporters._gauge import Gauge
from bcos_sdk.exporters._half import in_half, layer_of, products

__all__ = ["choose_half"]

Figures = tuple[Parity, ...]


def choose_half(
    compiled: Compiled, images: Tensor, attempt: Callable[[Compiled], Figures]
) -> tuple[tuple[str, ...], Figures]:
    """The layers that stay in float, in the order of the computation, and the figures of the graphs made last.

    `attempt` writes the programs and judges them; a `ParityError` of its is a verdict on the choice of layers.
    """
    gauge = Gauge(compiled.explain, images)

    def figures_with(kept: Sequence[str]) -> Figures | None:
        predict = in_half(compiled.predict, {}, kept)
        explain = in_half(compiled.explain, gauge.exponents, kept)
        explain_rows = in_half(compiled.explain_rows, gauge.exponents_of(compiled.explain_rows), kept)
        try:
            return attempt(dataclasses.replace(compiled, predict=predict, explain=explain, explain_rows=explain_rows))
        except ParityError:
            return None

    layers = list(dict.fromkeys(map(layer_of, products(compiled.predict))))
    too_few, enough = len(gauge.overflowing), len(layers)
    kept: Sequence[str] = sorted(gauge.overflowing, key=layers.index)
    figures = figures_with(kept) if too_few < enough else None
    if figures is None:
        ranking = gauge.ranking()
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            kept = ranking[:middle]
            figures = figures_with(kept)
            too_few, enough = (middle, enough) if figures is None else (too_few, middle)
        if enough == len(layers):
            raise ExportError(
                f"fp16 gains nothing for this module: all {len(layers)} of its layers would have to stay in float",
                hint="Export it with --precision fp32 (precision='fp32').",
            )
        if figures is None:
            kept = ranking[:enough]
            figures = figures_with(kept)
            assert figures is not None, "the same graphs get the same verdict"
    return tuple(sorted(kept, key=layers.index)), figures
