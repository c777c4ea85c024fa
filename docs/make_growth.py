"""Write docs/growth.md and its plot from docs/growth.json: `python docs/make_growth.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bcos_sdk._files import output_file

DOCS = Path(__file__).resolve().parent
DATA, PAGE, PLOT = DOCS / "growth.json", DOCS / "growth.md", DOCS / "growth.png"

TEXT = """\
# How time and memory grow

<!-- made by docs/make_growth.py from growth.json, which docs/measure_growth.py measures -->
![Time and peak memory of an explanation against images, targets, pixels and threads](growth.png)

`{model}` with random weights on {cpu}, {cores} cores. One value grows: the number of images, of targets of one image,
or of pixels of one image; everything else stays at one image, one target, 224×224 and two threads. Threads are
compared with eight images. Times are medians of {rounds} interleaved rounds; each timed call follows one of the same
kind that is not timed. Memory is the peak of a process that explains twice, with Python and libraries. Dashed: the
straight line that fits best. "Off the line" is the largest distance of a point from it, relative to the line's value
there.

{table}

{reasons}
"""

_AXES = {
    "images": "images in a call",
    "targets": "targets of one image",
    "side": "pixels of one image, in 224×224",
    "threads": "threads, eight images",
}
_COLOURS = {"openvino": "#1f6f8b", "cpu": "#d98032"}
_REASONS = """\
- Time is a straight line in images, targets and pixels: the work of each is the same, and a call itself costs little.
- One target of an image takes the path that also serves batches. From two targets on, the forward pass is shared, so
  each further target costs one backward pass.
- OpenVINO runs larger batches in parts, so its memory grows only by the images and their results. ONNX Runtime keeps
  the activations of a whole batch; for few images, its peak is that of loading the graph.
- Two threads are less than twice as fast as one, probably because they share caches and the bandwidth of the memory."""

Point = dict[str, Any]


def page(data: dict[str, Any]) -> str:
    """Return the whole page. It depends only on the data."""
    rows = [
        [
            _AXES[sweep],
            device,
            *(cell for quantity in ("seconds", "peak_mb") for cell in _cells(data, sweep, device, quantity)),
        ]
        for sweep in _AXES
        for device in _COLOURS
    ]
    header = [
        "what grows",
        "device",
        "ms at the least",
        "ms at the most",
        "off the line",
        "MB at the least",
        "MB at the most",
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows))
    named = {name: data[name] for name in ("model", "cpu", "cores", "rounds")}
    return TEXT.format(table=table, reasons=_REASONS, **named)


def _cells(data: dict[str, Any], sweep: str, device: str, quantity: str) -> list[str]:
    x, y = curve(data["points"], sweep, device, quantity)
    if quantity == "peak_mb":
        return [f"{y[0]:.0f}", f"{y[-1]:.0f}"]
    return [f"{1e3 * y[0]:.1f}", f"{1e3 * y[-1]:.0f}", "–" if len(x) < 3 else f"{100 * _off_the_line(x, y):.0f} %"]


def curve(points: list[Point], sweep: str, device: str, quantity: str) -> tuple[Any, Any]:
    """The values of what grows, and those of the quantity."""
    chosen = [point for point in points if (point["sweep"], point["device"]) == (sweep, device)]
    values = [(point[sweep] / 224) ** 2 if sweep == "side" else point[sweep] for point in chosen]
    return np.array(values, float), np.array([point[quantity] for point in chosen], float)


def _line(x: Any, y: Any) -> Any:
    """The straight line with the least relative squares, at x."""
    return np.polyval(np.polyfit(x, y, 1, w=1 / y), x)


def _off_the_line(x: Any, y: Any) -> float:
    return float(np.max(np.abs(y / _line(x, y) - 1)))


def draw(data: dict[str, Any], path: Path) -> None:
    """Write the plot: a column for each thing that grows, a row for time and one for memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(_AXES))
    for column, (sweep, label) in enumerate(_AXES.items()):
        for row, (quantity, factor) in enumerate({"seconds": 1e3, "peak_mb": 1.0}.items()):
            axes = grid[row][column]
            for device, colour in _COLOURS.items():
                x, y = curve(data["points"], sweep, device, quantity)
                axes.plot(x, factor * y, "o-", color=colour, label=device, linewidth=1.4, markersize=4)
                if len(x) > 2:
                    axes.plot(x, factor * _line(x, y), "--", color=colour, linewidth=0.8)
            axes.set_ylim(0)
            axes.set_xlim(0)
            axes.set_xlabel(label)
            axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].set_ylabel("ms of a call")
    grid[1][0].set_ylabel("peak MB of the process")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    with output_file(path) as partial:
        figure.savefig(partial, format="png", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    data = json.loads(DATA.read_text("utf-8"))
    PAGE.write_text(page(data), "utf-8")
    draw(data, PLOT)
