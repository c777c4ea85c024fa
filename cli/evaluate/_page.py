"""The page of an evaluation: tables and plots in the style of the report, without scripts."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from bcos_sdk._files import output_file
from bcos_sdk._plain_text import plain
from bcos_sdk.cli._page import content_security_policy, report_style
from bcos_sdk.cli.evaluate._plots import bars, box_plot, lines
from bcos_sdk.cli.evaluate._table import AGAINST, against_rows, difference_rows, figure_rows
from bcos_sdk.evaluation import Evaluated, Evaluation, Spread

__all__ = ["write_page"]

_MOST_FAILURES = 200
_AGAINST = (
    "Post-hoc methods explain the same network with its dynamic weights not detached, on the first of the same grids. "
    "“ours” is the score of the model's own explanation on the grids of the method. ms: milliseconds per explanation."
)
_OWN_STYLE = """
main.sheets { grid-template-columns: repeat(auto-fill, minmax(min(440px, 100%), 1fr)); }
.sheet { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; }
.sheet { min-width: 0; }
.wide { grid-column: 1 / -1; }
.sheet h2 { margin-bottom: 8px; }
.sheet p { font-size: 13.5px; color: var(--quiet); margin: 8px 0 0; overflow-wrap: anywhere; }
.sheet .scroll { margin-top: 0; max-height: 60vh; overflow: auto; }
.sheet svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
svg .middle { text-anchor: middle; } svg .end { text-anchor: end; }
svg .tick { stroke: var(--line); } svg .diagonal { stroke: var(--quiet); stroke-dasharray: 4 4; fill: none; }
svg .line { fill: none; stroke-width: 2; }
svg .line.l0, svg .box { stroke: #1f6f8b; }
svg .line.l1 { stroke: #d98032; } svg .line.l2 { stroke: #8a8a8a; } svg .line.l3 { stroke: #7b4fa3; }
svg .key.l0 { fill: #1f6f8b; } svg .key.l1 { fill: #d98032; } svg .key.l2 { fill: #8a8a8a; }
svg .key.l3 { fill: #7b4fa3; }
svg .bar0 { fill: #1f6f8b; } svg .box { fill: #1f6f8b55; } svg .whisker { stroke: #1f6f8b; }
svg .median { stroke: #1f6f8b; stroke-width: 2.5; } svg .mean { fill: #d98032; }
"""


def write_page(result: Evaluation, path: Path) -> None:
    """Write the page atomically. It depends only on the result, and fetches nothing."""
    title = plain(f"Evaluation of {result.model.name} on {result.images:,} images ({result.layout})")
    sheets = "\n".join(_sheets(result))
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{{{policy}}}}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{report_style()}{_OWN_STYLE}</style>
</head>
<body>
<header><h1>{html.escape(title)}</h1></header>
<main class="sheets">
{sheets}
</main>
</body>
</html>
"""
    with output_file(path) as partial:
        partial.write_text(page.replace("{{policy}}", content_security_policy(page)), "utf-8")


def _sheets(result: Evaluation) -> Iterator[str]:
    model, other = result.model, result.other
    yield _sheet("Figures", _table(("figure", "value", "images or grids"), figure_rows(result)), _about(result))
    if result.differences:
        header = ("figure", "model", "compared", "difference", "95 % interval", "items that differ")
        assert other is not None
        note = f"Compared: {_described(other)}. Difference = model − compared, on the same images, grid by grid."
        yield _sheet("Compared", _table(header, difference_rows(result.differences)), note, wide=True)
    if methods := against_rows(result):
        assert result.against is not None
        same = [f"{one['title']} equals {one['equals']}." for one in result.against["methods"] if one["equals"]]
        yield _sheet("Against other methods", _table(AGAINST, methods), " ".join([_AGAINST, *same]), wide=True)
        spreads = {one["title"]: Spread.model_validate(one["spread"]) for one in result.against["methods"]}
        yield _sheet("Localisation by method", box_plot(spreads, across="share in the own cell", mark=_chance(result)))
    both = [("model", model)] + ([] if other is None else [("compared", other)])
    yield from _accuracy_sheets(model)
    if "localisation" in model.figures:
        boxes = {name: one.figures["localisation"].spreads["localisation"] for name, one in both}
        note = f"Boxes: quartiles over all cells; whiskers: 5 and 95 %; point: mean. Maps by {result.grid_mode}."
        yield _sheet("Grid pointing game", box_plot(boxes, across="share in the own cell", mark=_chance(result)), note)
    if "masks" in model.figures:
        boxes = {name: one.figures["masks"].spreads["inside"] for name, one in both}
        area = model.figures["masks"].values["area"]
        note = "Dashed: the area of the object, which a uniform map would score. Borders of trimaps are left out."
        yield _sheet("Contribution on the object", box_plot(boxes, across="share on the object", mark=area), note)
    yield from _faithfulness_sheets(model)
    if "bias" in model.figures:
        histogram = model.figures["bias"].details["histogram"]
        plot = bars(histogram["count"], -1, 1, across="(b₁ − b₂) / (y₁ − y₂)", up="images")
        yield _sheet("Share of the bias in the difference of the two largest logits", plot)
    if "stability" in model.figures:
        one = model.figures["stability"]
        curves = {name: list(zip(one.details["shifts"], one.curves[name], strict=True)) for name in ("cosine", "rank")}
        yield _sheet("Stability under diagonal shifts", lines(curves, across="shift in pixels", up="similarity"))
    for title, evaluated in both:
        if evaluated.failures:
            yield _sheet(f"Failed ({title})", _failures(evaluated), wide=True)


def _accuracy_sheets(model: Evaluated) -> Iterator[str]:
    if "accuracy" not in model.figures:
        return
    details = model.figures["accuracy"].details
    bins = details["reliability"]
    used = [at for at, count in enumerate(bins["count"]) if count]
    curve = {"share that is right": [(bins["probability"][at], bins["right"][at]) for at in used]}
    note = "On the dashed line, a probability of 80 % is right in 80 % of the images."
    yield _sheet("Calibration", lines(curve, across="probability", up="share right", diagonal=True), note)
    rows = [(one["label"], f"{100 * one['top1']:.1f}", f"{one['images']:,}") for one in details["classes"]]
    yield _sheet("Accuracy by class", _table(("class", "top-1 %", "images"), rows))
    if details["confused"]:
        rows = [(one["label"], one["predicted"], f"{one['images']:,}") for one in details["confused"]]
        yield _sheet("Most confused", _table(("class", "taken for", "images"), rows))


def _faithfulness_sheets(model: Evaluated) -> Iterator[str]:
    if "faithfulness" not in model.figures:
        return
    all_curves = model.figures["faithfulness"].curves
    titles = {"most": "most important first", "random": "random", "least": "least important first"}
    notes = {
        "deletion": "Pixels become grey. Lower is better.",
        "insertion": "Pixels of the image replace those of the blurred image. Higher is better.",
    }
    for kind, note in notes.items():
        curves = {}
        for order, title in titles.items():
            curve = all_curves[f"{kind}_{order}"]
            curves[title] = [(at / (len(curve) - 1), value) for at, value in enumerate(curve)]
        yield _sheet(f"Faithfulness: {kind}", lines(curves, across="share of pixels", up="probability"), note)


def _chance(result: Evaluation) -> float:
    return 1 / result.settings.cells**2


def _described(one: Evaluated) -> str:
    return f"{one.name}, {one.precision}, on {one.device}"


def _about(result: Evaluation) -> str:
    seed = f"seed {result.settings.seed}, maps smoothed over {result.smooth} pixels"
    corrected = ", mean-corrected" if result.settings.mean_corrected else ""
    return " ".join([f"{_described(result.model)}; {seed}{corrected}.", *result.notes])


def _failures(one: Evaluated) -> str:
    rows = [
        (measure, failure.source, failure.message)
        for measure, failures in one.failures.items()
        for failure in failures[:_MOST_FAILURES]
    ]
    return _table(("measure", "image or grid", "error"), rows)


def _sheet(title: str, content: str, note: str = "", *, wide: bool = False) -> str:
    text = f"<p>{html.escape(plain(note))}</p>" if note else ""
    return f'<section class="sheet{" wide" if wide else ""}"><h2>{html.escape(title)}</h2>{content}{text}</section>'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(plain(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
