"""Results in a notebook: pictures, classes, terms and certificate as HTML without scripts or anything to fetch.

Colours are those of the notebook, so that light and dark ones work. Every text is escaped: file names and labels may
contain anything.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from PIL import Image

from bcos_sdk import pictures
from bcos_sdk._plain_text import plain
from bcos_sdk.errors import BcosError

if TYPE_CHECKING:
    from bcos_sdk.results._explanation import Explained, Explanation
    from bcos_sdk.results._records import ClassScore, Failure, Prediction, Target

__all__ = ["explained_html", "explanation_html", "failure_html", "prediction_html"]

_MOST_CLASSES = 5
_LINE = "1px solid rgba(127,127,127,.4)"
_BLOCK = f"display:inline-block;max-width:100%;border:{_LINE};border-radius:8px;padding:8px 12px;margin:4px 0"
_QUIET = "opacity:.7;font-size:90%"
_GOOD, _BAD = "color:#2e9e4f", "color:#d9453d"
_CELL = "text-align:left;padding:1px 10px 1px 0;border:0;background:none"
_NUMBER = "text-align:right;padding:1px 0;border:0;background:none;font-variant-numeric:tabular-nums"
_PICTURE = "width:224px;max-width:100%;height:auto;background:#fff;border-radius:6px"
_MEANING = "Complete: the terms add up to the logit. This says nothing about whether the class is right."


def prediction_html(prediction: Prediction) -> str:
    """The most likely classes with their probabilities."""
    return _block(_title(prediction), _classes(prediction))


def explained_html(explained: Explained) -> str:
    """What is predicted, and what is drawn, for each explanation."""
    prediction = explained.prediction
    with_image = [one for one in explained.explanations if "image" in one.arrays]
    images = [_picture(Image.fromarray(one.display), "the image", "image") for one in with_image[:1]]
    drawn = [_drawn(explanation, prediction.classes[:1]) for explanation in explained.explanations]
    return _block(_title(prediction), _columns(*images, _classes(prediction)), *drawn)


def explanation_html(explanation: Explanation) -> str:
    """One explanation: what is drawn, its terms and its certificate."""
    return _block(_title(explanation), _drawn(explanation, ()))


def failure_html(failure: Failure) -> str:
    """The error of an image, and what to do."""
    hint = _part(failure.hint, _QUIET) if failure.hint else ""
    return _block(f"<b>{_text(failure.source)}</b>", _part(f"✗ {failure.message} [{failure.code}]", _BAD), hint)


def _drawn(explanation: Explanation, predicted: Iterable[ClassScore]) -> str:
    target = explanation.target
    caption = f"drawn: {target.label}, {_amount(target)}"
    for score in predicted:
        caption += f" · predicted: {score.label}, {_amount(score)}"
    columns = _columns(*_drawings(explanation, caption), _terms(explanation))
    style = f"border-top:{_LINE};margin-top:8px;padding-top:6px"
    return f'<div style="{style}">{_part(caption, "font-weight:600")}{columns}</div>'


def _drawings(explanation: Explanation, alt: str) -> list[str]:
    """The pictures, or why there are none."""
    try:
        drawn = {"overlay": explanation.overlay()}
        if "weights" in explanation.arrays:
            drawn["W(x)"] = pictures.on_white(explanation.rgba())
    except BcosError as error:
        return [_part(f"✗ {error.message}", _BAD) + _part(error.hint or "", _QUIET)]
    return [_picture(picture, f"{name}, {alt}", name) for name, picture in drawn.items()]


def _terms(explanation: Explanation) -> str:
    """The sum that makes the logit, term by term, and whether it does."""
    certificate = explanation.completeness
    terms = {"pixels": certificate.sum - sum(explanation.bias.values()), **explanation.bias}
    rows = [(name, f"{value:+.4f}") for name, value in terms.items()]
    rows += [("sum", f"{certificate.sum:+.4f}"), ("logit", f"{certificate.logit:+.4f}")]
    residual = f"relative residual {certificate.relative_residual:.1e}, tolerance {certificate.tolerance:.0e}"
    return _table(rows) + _verdict(explanation) + _part(residual, _QUIET) + _part(_MEANING, _QUIET)


def _verdict(explanation: Explanation) -> str:
    if not explanation.completeness.passed:
        return _part("✗ explanation incomplete", _BAD)
    if not explanation.verified:
        return _part("not verified: the file states a complete explanation, but has no arrays to check it", _BAD)
    return _part("✓ explanation complete", _GOOD)


def _classes(prediction: Prediction) -> str:
    rows = [(score.label, _amount(score)) for score in prediction.classes[:_MOST_CLASSES]]
    notes = "".join(_part(note, _QUIET) for note in prediction.notes)
    return _part("predicted", _QUIET) + _table(rows) + notes


def _picture(picture: Image.Image, alt: str, caption: str) -> str:
    image = f'<img src="{pictures.data_uri(picture)}" alt="{_text(alt)}" style="{_PICTURE}">'
    return image + _part(caption, _QUIET)


def _title(record: Prediction | Explanation) -> str:
    return f'<b>{_text(record.source)}</b> <span style="{_QUIET}">{_text(record.model)}</span>'


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr style="background:none"><td style="{_CELL}">{_text(name)}</td>'
        f'<td style="{_NUMBER}">{_text(value)}</td></tr>'
        for name, value in rows
    )
    return f'<table style="border:0;border-collapse:collapse;margin:0;font-size:inherit;color:inherit">{lines}</table>'


def _columns(*parts: str) -> str:
    columns = (f'<div style="max-width:26em">{part}</div>' for part in parts if part)
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px 16px;align-items:flex-start">{"".join(columns)}</div>'


def _block(*parts: str) -> str:
    return f'<div style="{_BLOCK}">{"".join(parts)}</div>'


def _part(text: str, style: str) -> str:
    return f'<div style="{style}">{_text(text)}</div>'


def _text(text: str) -> str:
    return html.escape(plain(text))


def _amount(scored: Target | ClassScore) -> str:
    return f"logit {scored.logit:+.2f}" if scored.probability is None else _percent(scored.probability)


def _percent(probability: float) -> str:
    if 0 < probability < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= probability < 1:
        return "> 99.9 %"
    return f"{100 * probability:.1f} %"
