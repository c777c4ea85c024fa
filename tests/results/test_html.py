"""Results in a notebook: well-formed HTML that shows everything, fetches nothing and runs nothing."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bcos_sdk.errors import UnreadableImageError
from bcos_sdk.results import ClassScore, Completeness, Explained, Explanation, Failure, Prediction, Target

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>\x1b[31m\u202e\udcff.png"
ATTRIBUTES = {"style", "src", "alt"}
TAGS = {"div", "span", "b", "img", "table", "tr", "td"}


class Page(HTMLParser):
    """Parses strictly: every element is known and closed, every attribute is harmless."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.pictures: list[Image.Image] = []
        self.alts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(self.words)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        assert tag in TAGS
        assert values.keys() <= ATTRIBUTES
        assert "url(" not in (values.get("style") or "")
        if tag == "img":
            head, data = (values["src"] or "").split(",")
            assert head == "data:image/webp;base64"
            self.pictures.append(Image.open(io.BytesIO(base64.b64decode(data))))
            self.alts.append(values["alt"] or "")
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def explanation(label: str = "dog", *, off: float = 0.0, weights: bool = False, source: str = "a.png") -> Explanation:
    contributions = np.linspace(-1, 2, 48, dtype=np.float32).reshape(6, 8)
    total = float(contributions.sum(dtype=np.float64)) - 2.5
    scale = float(np.abs(contributions).sum(dtype=np.float64)) + 2.5
    arrays: dict[str, Any] = {"contributions": contributions, "image": np.full((6, 8, 3), 99, np.uint8)}
    if weights:
        arrays["weights"] = np.repeat(contributions[None] / 3, 6, axis=0)  # rgb and 1 − rgb add up to 3
    return Explanation(
        source=source,
        model="net",
        target=Target(index=1, label=label, logit=total + off, probability=0.0034),
        bias={"logit_bias": -2.5},
        completeness=Completeness(logit=total + off, sum=total, scale=scale, tolerance=1e-5),
        arrays=arrays,
    )


def explained(*explanations: Explanation, source: str = "a.png", label: str = "bird") -> Explained:
    classes = (
        ClassScore(index=0, label=label, logit=5.0, probability=0.9961),
        ClassScore(index=1, label="dog", logit=-5.7, probability=0.0034),
    )
    prediction = Prediction(source=source, model="net", classes=classes, notes=("16 bits were read as 12",))
    return Explained(source=source, prediction=prediction, explanations=explanations)


def test_an_explained_image_says_what_is_drawn_and_what_is_predicted() -> None:
    cat = explanation("cat")
    page = Page(explained(explanation(weights=True), cat, explanation() - cat)._repr_html_())
    assert "drawn: dog, 0.3 % · predicted: bird, 99.6 %" in page.text
    assert "drawn: dog vs cat, logit +0.00 · predicted: bird, 99.6 %" in page.text
    assert "16 bits were read as 12" in page.text
    assert len(page.pictures) == 5, "the image, three overlays, and W(x) for the one that has weights"
    assert {min(picture.size) for picture in page.pictures} == {168}, "at most 224 pixels wide and high"
    assert [alt for alt in page.alts if "drawn: cat, 0.3 % · predicted: bird" in alt]


def test_an_explanation_shows_terms_and_certificate() -> None:
    e = explanation()
    page = Page(e._repr_html_())
    pixels = float(e.contributions.sum(dtype=np.float64))
    terms = f"pixels {pixels:+.4f} logit_bias -2.5000 sum {pixels - 2.5:+.4f} logit {pixels - 2.5:+.4f}"
    assert terms in " ".join(page.text.split())
    assert "✓ explanation complete" in page.text
    assert "nothing about whether the class is right" in page.text
    assert len(page.pictures) == 1


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (explanation(off=1.0), "is not complete: its terms add up to"),
        (explanation(off=float("nan")), "is not complete"),
        (Explanation.from_json(explanation().to_json(arrays="omit")), "no image"),
        (Explanation.from_json(explanation(off=1.0).to_json(arrays="omit")), "no image"),
    ],
    ids=["incomplete", "nan", "without arrays", "incomplete without arrays"],
)
def test_without_a_picture_the_reason_is_shown(result: Explanation, reason: str) -> None:
    page = Page(result._repr_html_())
    assert reason in page.text
    assert page.pictures == []
    assert reason in Page(explained(result)._repr_html_()).text


def test_predictions_and_failures() -> None:
    page = Page(explained().prediction._repr_html_())
    assert "a.png net predicted bird 99.6 % dog 0.3 %" in " ".join(page.text.split())
    failure = Failure.of(UnreadableImageError("it is damaged", hint="Try another."), "b.png")
    assert "b.png ✗ it is damaged [image_unreadable] Try another." in " ".join(Page(failure._repr_html_()).text.split())


def test_every_text_is_escaped() -> None:
    """The parser refuses elements and attributes that the names would add."""
    result = explained(explanation(HOSTILE, source=HOSTILE), source=HOSTILE, label=HOSTILE)
    failure = Failure(source=HOSTILE, code=HOSTILE, message=HOSTILE, hint=HOSTILE, retryable=False)
    for record in (result, result.explanations[0], result.prediction, failure):
        text = record._repr_html_()
        text.encode("utf-8")
        page = Page(text)
        assert "<script>alert(1)</script>" in page.text, "shown as text"
        assert "\\x1b[31m\\u202e\\xff.png" in page.text, "control characters as codes"
