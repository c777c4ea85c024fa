"""The report: one self-contained HTML page, which needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from bcos_sdk._files import atomic_write
from bcos_sdk._plain_text import plain
from bcos_sdk.bundle import Manifest
from bcos_sdk.cli._hints import hint_here
from bcos_sdk.cli._page import content_security_policy, plain_texts, report_template
from bcos_sdk.cli.predict._drawings import Artist
from bcos_sdk.errors import BcosError
from bcos_sdk.pictures import data_uri, on_white
from bcos_sdk.results import Explained, Explanation, Failure, Prediction

__all__ = ["SIDE", "drawn_entry", "image_entry", "report_entry", "write_report"]

SIDE = 320
"""Largest side of a picture of the page in pixels. A photograph then takes about 12 KB."""
_RANKS = {1: "Most likely class", 2: "Second class", 3: "Third class"}
_DIFFERENCE = "Difference"


def report_entry(path: Path, result: Prediction | Explained | Failure, artist: Artist) -> dict[str, Any]:
    """Return the data of one image for the page: its pictures, each with the class that is drawn, and its classes."""
    if isinstance(result, Failure):
        error = {"code": result.code, "message": result.message, "hint": hint_here(result.hint)}
        return {"source": result.source, "error": error}
    if isinstance(result, Prediction):
        return {"source": result.source, "error": {"code": "not_explained", "message": "no explanation", "hint": None}}
    try:
        return _explained_entry(artist.sharpened(path, result, SIDE), artist)
    except BcosError as error:  # an incomplete explanation cannot be drawn
        return report_entry(path, Failure.of(error, result.source), artist)


def write_report(page: Path, title: str, entries: Iterable[dict[str, Any]]) -> None:
    """Write the page atomically. Entries are written one by one, so that memory does not grow with their number."""
    template = report_template()
    head, tail = template.replace("{{policy}}", content_security_policy(template)).split("{{entries}}")
    with atomic_write(page) as aside, aside.open("w", encoding="utf-8") as file:
        file.write(head.replace("{{title}}", html.escape(plain(title))))
        for number, entry in enumerate(entries):
            # A file name that contains </script> must not end the data.
            text = json.dumps(plain_texts(entry), ensure_ascii=True).replace("<", "\\u003c")
            file.write(f"{',' if number else ''}\n{text}")
        file.write(tail)


def _explained_entry(result: Explained, artist: Artist) -> dict[str, Any]:
    drawn = [drawn_entry(role, explanation) for role, explanation in _roles(result.explanations, artist.ranked)]
    return image_entry(result, artist.manifest, Image.fromarray(result.explanations[0].display), drawn)


def image_entry(
    result: Explained, manifest: Manifest, image: Image.Image, drawn: list[dict[str, Any]]
) -> dict[str, Any]:
    """The data of one image for the page, with the picture `image` and what is drawn."""
    geometry = result.explanations[0].geometry
    return {
        "source": result.source,
        "probability": manifest.probability,
        "predicted": [score.model_dump() for score in result.prediction.classes[:3]],
        "notes": list(result.prediction.notes),
        "geometry": geometry.model_dump() if geometry else None,
        "input": list(manifest.input.size),
        "image": data_uri(image, SIDE),
        "drawn": drawn,
    }


def _roles(explanations: tuple[Explanation, ...], ranked: bool) -> list[tuple[str, Explanation]]:
    """What the page draws, by the name of its button: targets as the user gave them, else ranks and a difference."""
    if not ranked:
        return [(explanation.target.label, explanation) for explanation in explanations]
    roles = [(_RANKS.get(rank, f"Class {rank}"), explanation) for rank, explanation in enumerate(explanations, 1)]
    if len(explanations) > 1:
        roles.append((_DIFFERENCE, explanations[0] - explanations[1]))
    return roles


def drawn_entry(role: str, explanation: Explanation) -> dict[str, Any]:
    """The data of one explanation for the page."""
    return {
        "role": role,
        "target": explanation.target.model_dump(),
        "bias": explanation.bias,
        "pixels": explanation.completeness.sum - sum(explanation.bias.values()),
        "completeness": explanation.completeness.model_dump(),
        "views": {
            "overlay": data_uri(explanation.overlay(), SIDE),
            "heatmap": data_uri(explanation.heatmap()),
            "rgba": data_uri(on_white(explanation.rgba())),  # transparency takes four times the bytes
        },
    }
