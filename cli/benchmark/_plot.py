"""Plot a report: bars of milliseconds per image, one row of axes per model, one column per batch size."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk._extras import require
from bcos_sdk._files import output_file
from bcos_sdk.cli.benchmark._measurements import ModelRecord, Report, Side
from bcos_sdk.cli.benchmark._tables import describe_timing, three_digits

__all__ = ["FORMATS", "check_plot", "draw_plot"]

FORMATS = (".png", ".svg")
_COLOURS: dict[Side, str] = {
    "ours": "#1f6f8b",
    "conventional": "#9a9a9a",
    "reference": "#d98032",
    "torch": "#7b5ea7",
    "compiled": "#b39ddb",
}
_NAMES: dict[Side, str] = {
    "ours": "bcos-sdk",
    "conventional": "conventional network",
    "reference": "reference package",
    "torch": "ours in torch",
    "compiled": "ours with torch.compile",
}


def check_plot() -> None:
    """Raise `MissingExtraError` if matplotlib is not installed."""
    require("matplotlib", purpose="Drawing the plot")


def draw_plot(report: Report, path: Path) -> None:
    """Write the plot atomically, as PNG or SVG according to the suffix."""
    check_plot()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows, columns = len(report.models), len(report.batches)
    bars = [max(_bars_in(model, batch) for batch in report.batches) for model in report.models]
    figure = Figure(figsize=(6.4 * columns, sum(0.9 + 0.26 * count for count in bars) + 0.7), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"height_ratios": [3 + count for count in bars]})
    for row, model in enumerate(report.models):
        for column, batch in enumerate(report.batches):
            _draw_bars(grid[row][column], model, batch, bars[row])
    sides = {timing.side for model in report.models for timing in model.timings}
    patches = [Patch(color=_COLOURS[side], label=_NAMES[side]) for side in _COLOURS if side in sides]
    figure.legend(handles=patches, loc="outside upper center", ncols=len(patches), frameon=False)
    with output_file(path) as partial:
        metadata = {_VARYING_METADATA[path.suffix.lower()]: None}
        figure.savefig(partial, format=path.suffix[1:].lower(), dpi=110, metadata=metadata)


_VARYING_METADATA = {".png": "Software", ".svg": "Date"}
"""Metadata that is left out, so that the same report always gives the same file."""


def _bars_in(model: ModelRecord, batch: int) -> int:
    return sum(timing.batch == batch for timing in model.timings)


def _draw_bars(axes: object, model: ModelRecord, batch: int, places_in_row: int) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    timings = sorted((one for one in model.timings if one.batch == batch), key=lambda one: one.median_ms)
    places = list(range(len(timings)))
    bars = axes.barh(places, [one.median_ms for one in timings], color=[_COLOURS[one.side] for one in timings])
    axes.bar_label(bars, [three_digits(one.median_ms) for one in timings], padding=3, fontsize=8)
    axes.set_yticks(places, [describe_timing(one) for one in timings], fontsize=8)
    precision = "" if model.precision == "fp32" else f" in {model.precision}"
    axes.set_title(f"{model.name}{precision}, batch {batch}", fontsize=10, loc="left")
    axes.set_xlabel("ms per image, median", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.margins(x=0.15)
    axes.set_ylim(places_in_row - 0.4, -0.6)  # the same bar thickness in all axes of a row, first bar on top
    axes.spines[["top", "right"]].set_visible(False)
