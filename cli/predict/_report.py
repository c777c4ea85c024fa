"""The report: one self-contained HTML page, which needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from bcos_sdk._files import atomic_write
from bcos_sdk._plain_text import plain
from bcos_sdk.cli.predict._drawings import Artist
from bcos_sdk.errors import BcosError
from bcos_sdk.pictures import data_uri, on_white
from bcos_sdk.results import Explained, Explanation, Failure, Prediction

__all__ = ["report_entry", "write_report"]

_SIDE = 320
"""Largest side of a picture of the page in pixels. A photograph then takes about 12 KB."""
_RANKS = {1: "Most likely class", 2: "Second class", 3: "Third class"}
_DIFFERENCE = "Difference"


def report_entry(path: Path, result: Prediction | Explained | Failure, artist: Artist) -> dict[str, Any]:
    """Return the data of one image for the page: its pictures, each with the class that is drawn, and its classes."""
    if isinstance(result, Failure):
        return {"source": result.source, "error": {"code": result.code, "message": result.message, "hint": result.hint}}
    if isinstance(result, Prediction):
        return {"source": result.source, "error": {"code": "not_explained", "message": "no explanation", "hint": None}}
    try:
        return _explained_entry(artist.sharpened(path, result, _SIDE), artist)
    except BcosError as error:  # an incomplete explanation cannot be drawn
        return report_entry(path, Failure.of(error, result.source), artist)


def write_report(page: Path, title: str, entries: Iterable[dict[str, Any]]) -> None:
    """Write the page atomically. Entries are written one by one, so that memory does not grow with their number."""
    template = files("bcos_sdk.cli.predict").joinpath("report.html").read_text("utf-8")
    head, tail = template.replace("{{policy}}", _content_security_policy(template)).split("{{entries}}")
    with atomic_write(page) as aside, aside.open("w", encoding="utf-8") as file:
        file.write(head.replace("{{title}}", html.escape(plain(title))))
        for number, entry in enumerate(entries):
            # A file name that contains </script> must not end the data.
            text = json.dumps(_plain_texts(entry), ensure_ascii=True).replace("<", "\\u003c")
            file.write(f"{',' if number else ''}\n{text}")
        file.write(tail)


def _plain_texts(value: Any) -> Any:
    """The same data. In its texts, control characters and changes of the writing direction are shown as escapes."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(name): _plain_texts(inner) for name, inner in value.items()}
    return [*map(_plain_texts, value)] if isinstance(value, (list, tuple)) else value


def _explained_entry(result: Explained, artist: Artist) -> dict[str, Any]:
    first = result.explanations[0]
    return {
        "source": result.source,
        "probability": artist.manifest.probability,
        "predicted": [score.model_dump() for score in result.prediction.classes[:3]],
        "notes": list(result.prediction.notes),
        "geometry": first.geometry.model_dump() if first.geometry else None,
        "input": list(artist.manifest.input.size),
        "image": data_uri(Image.fromarray(first.display), _SIDE),
        "drawn": [_drawn(role, explanation) for role, explanation in _roles(result.explanations, artist.ranked)],
    }


def _roles(explanations: tuple[Explanation, ...], ranked: bool) -> list[tuple[str, Explanation]]:
    """What the page draws, by the name of its button: targets as the user gave them, else ranks and a difference."""
    if not ranked:
        return [(explanation.target.label, explanation) for explanation in explanations]
    roles = [(_RANKS.get(rank, f"Class {rank}"), explanation) for rank, explanation in enumerate(explanations, 1)]
    if len(explanations) > 1:
        roles.append((_DIFFERENCE, explanations[0] - explanations[1]))
    return roles


def _drawn(role: str, explanation: Explanation) -> dict[str, Any]:
    return {
        "role": role,
        "target": explanation.target.model_dump(),
        "bias": explanation.bias,
        "pixels": explanation.completeness.sum - sum(explanation.bias.values()),
        "completeness": explanation.completeness.model_dump(),
        "views": {
            "overlay": data_uri(explanation.overlay(), _SIDE),
            "heatmap": data_uri(explanation.heatmap()),
            "rgba": data_uri(on_white(explanation.rgba())),  # transparency takes four times the bytes
        },
    }


def _content_security_policy(template: str) -> str:
    """Allow the page its own style, its own script and pictures inside it; nothing else."""
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in re.findall(r"<style>(.*?)</style>.*<script>(.*?)</script>", template, re.DOTALL)[0]
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )
