"""Make the page of figures and its plot from `docs/benchmarks.json` alone: `python docs/make_benchmarks.py`."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk.cli.benchmark import Report
from bcos_sdk.cli.benchmark._plot import draw_plot
from bcos_sdk.cli.benchmark._report import ModelRecord
from bcos_sdk.cli.benchmark._tables import (
    Table,
    goal_table,
    machine_rows,
    model_title,
    process_table,
    ratio_table,
    timing_table,
)

DOCS = Path(__file__).resolve().parent
DATA, PAGE, PLOT = DOCS / "benchmarks.json", DOCS / "benchmarks.md", DOCS / "benchmarks.png"

TEXT = """\
# Figures

<!-- made by docs/make_benchmarks.py from benchmarks.json; `make bench` measures anew -->
{machine}

![Milliseconds per image of everything that was timed](benchmarks.png)

## How it was measured
All contenders of a batch size run in turns in one process, each with the same number of threads and the same images;
a first round warms up, and every round has another order. A time is the median over the rounds, per image;
"least" is the shortest. Weights are random, calibrated so that the signal reaches the logits: how long a network takes
does not depend on them.

- *predict*, *explain*: our graphs on ready arrays, explaining the most likely class. *Client*: the same through
  `Client` with its certificates; *with picture*: also W(x) and its RGBA picture. *Five classes*: in one
  call.
- *conventional*: torchvision's network of the same architecture, exported by `torch.onnx.export` and run with the
  settings of our graphs, each batch as a whole. "÷ conventional" is the ratio to it in ONNX Runtime, "there" on the
  same device.
- *reference*: the public package `bcos` in torch, with frozen parameters. *In batch*: autograd of the largest logits of
  a batch in explanation mode, times the image; `explain()`: its own call, for one image, which also draws the picture.
- *Cold start*: from the start of Python to the first explanation. *Peak MB*: the most memory of a process that explains
  a batch of the largest size, Python and libraries included.
- *Folder*: JPEGs of 500×375 pixels (of the size of the input, where nothing is resized) through `bcos-sdk predict
  --explain --out`, from the start of the process to its end. "÷ engine" is that throughput over the engine's on ready
  arrays of the same batch size, just before and after; "without start" the same less the cold start.

## Goals
{goals}

{models}
"""


def page(report: Report) -> str:
    """The whole page; nothing in it comes from elsewhere."""
    return TEXT.format(
        machine="\n".join(f"- {name}: {value}" for name, value in machine_rows(report)),
        goals=_markdown(goal_table(report)),
        models="\n\n".join(map(_section, report.models)),
    )


def _section(model: ModelRecord) -> str:
    tables = [timing_table(model), ratio_table(model), process_table(model)]
    parts = [f"## {model_title(model)}", *map(_markdown, tables)]
    return "\n\n".join([*parts, *(f"*{note}*" for note in model.notes)])


def _markdown(table: Table) -> str:
    header, rows = table
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    report = Report.from_json(DATA.read_bytes())
    PAGE.write_text(page(report), "utf-8")
    draw_plot(report, PLOT)
