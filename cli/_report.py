"""The report: one self-contained HTML page, which needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from bcos_sdk._files import atomic_write
from bcos_sdk.cli._drawings import Artist
from bcos_sdk.pictures import data_uri
from bcos_sdk.results import Explained, Explanation, Failure, Prediction

__all__ = ["report_entry", "write_report"]


def report_entry(path: Path, result: Prediction | Explained | Failure, artist: Artist) -> dict[str, Any]:
    """Return the data of one image for the page."""
    if not isinstance(result, Explained):
        failure = result if isinstance(result, Failure) else None
        return {"source": str(path), "error": {"code": failure.code, "message": failure.message} if failure else None}
    first, *others = result.explanations
    image = artist.image(path, first)
    entry: dict[str, Any] = {
        "source": str(path),
        "classes": [score.model_dump() for score in result.prediction.classes[:3]],
        "views": {
            "image": data_uri(image),
            "overlay": data_uri(artist.overlay(first, image)),
            "rgba": data_uri(artist.rgba(first)),
            "heatmap": data_uri(artist.heatmap(first)),
        },
        "explanations": [_figures(explanation) for explanation in result.explanations],
    }
    if others:
        entry["views"]["second"] = data_uri(artist.overlay(others[0], image))
        if "vs" not in others[0].target.label.split():
            difference = first - others[0]
            entry["views"]["delta"] = data_uri(artist.overlay(difference, image))
            entry["explanations"].append(_figures(difference))
    return entry


def write_report(page: Path, title: str, entries: Iterable[dict[str, Any]]) -> None:
    """Write the page atomically. Entries are written one by one, so that memory does not grow with their number."""
    template = files("bcos_sdk.cli").joinpath("report.html").read_text("utf-8")
    head, tail = template.replace("{{title}}", html.escape(title)).split("{{entries}}")
    with atomic_write(page) as aside, aside.open("w", encoding="utf-8") as file:
        file.write(head)
        for number, entry in enumerate(entries):
            # A file name that contains </script> must not end the data.
            text = json.dumps(entry, ensure_ascii=True).replace("<", "\\u003c")
            file.write(f"{',' if number else ''}\n{text}")
        file.write(tail)


def _figures(explanation: Explanation) -> dict[str, Any]:
    return {
        "target": explanation.target.model_dump(),
        "bias": explanation.bias,
        "pixels": explanation.completeness.sum - sum(explanation.bias.values()),
        "completeness": explanation.completeness.model_dump(),
    }
