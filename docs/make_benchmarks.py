"""Write docs/benchmarks.md and its plot from docs/benchmarks.json: `python docs/make_benchmarks.py`."""

from __future__ import annotations

from pathlib import Path

from bcos_sdk.cli.benchmark import (
    ModelRecord,
    Report,
    Table,
    calls_table,
    draw_plot,
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
# Benchmarks

<!-- made by docs/make_benchmarks.py from benchmarks.json; `make bench` measures again -->
{machine}

![Milliseconds per image of all cases](benchmarks.png)

## How it was measured
All cases of one batch size run in one process, with the same number of threads and the same images. They are
interleaved: each round runs every case once, in a new random order. The first round is a warm-up and is not counted.
"ms/image" is the median over the rounds, "least ms" the minimum. The weights are random and calibrated. Run time does
not depend on them.

- *predict*, *explain*: our graphs on arrays in memory. *explain* explains the most likely class. *client*: the same
  through `Client`, with its certificates. *with picture*: also W(x) and its RGBA picture. *five classes*: five
  explanations of one image in one call.
- *conventional*: the torchvision network of the same architecture, exported with `torch.onnx.export` and run with the
  settings of our graphs. "÷ conventional" is the ratio to its time in ONNX Runtime, "same device" the ratio to its
  time on the same device.
- *reference*: the public package `bcos` in torch, with frozen parameters. *explain in batch*: autograd of the largest
  logit of each image in explanation mode, times the image. *explain()*: the function of the package, which takes one
  image and also draws the picture.
- *cold start*: from the start of Python to the first explanation. *peak MB*: the peak memory of a process that explains
  one batch of the largest size, including Python and libraries.
- *folder*: JPEGs of 500×375 pixels, or of the input size if the model does not resize or its input is smaller than
  128 pixels, through `bcos-sdk predict --explain --out`, from the start of the process to its end. "÷ backend" is this
  throughput divided by that of the backend alone on arrays in memory, measured just before and after. "without start"
  does not count the cold start.
- *stream*, *callers*: JPEGs in memory through `Client.explain_stream`, and through `Client.explain` of one client that
  many threads call with one image each. "÷ backend" and "÷ stream" are ratios of throughput, interleaved with the
  backend alone. "ms per call" is the median while all callers call.

[How time and memory grow](growth.md) with images, targets, pixels and threads has a page of its own.

## Goals
{goals}

{models}
"""


def page(report: Report) -> str:
    """Return the whole page. It depends only on the report."""
    return TEXT.format(
        machine="\n".join(f"- {name}: {value}" for name, value in machine_rows(report)),
        goals=_markdown(goal_table(report)),
        models="\n\n".join(map(_section, report.models)),
    )


def _section(model: ModelRecord) -> str:
    tables = [timing_table(model), ratio_table(model), process_table(model), calls_table(model)]
    parts = [f"## {model_title(model)}", *(_markdown(table) for table in tables if table[1])]
    return "\n\n".join([*parts, *(f"*{note}*" for note in model.notes)])


def _markdown(table: Table) -> str:
    header, rows = table
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    report = Report.from_json(DATA.read_bytes())
    PAGE.write_text(page(report), "utf-8")
    draw_plot(report, PLOT)
