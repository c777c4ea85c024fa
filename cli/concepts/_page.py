"""The sheet as a page: the report page, with one section per direction."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from bcos_sdk.bundle import Manifest
from bcos_sdk.cli._hints import hint_here
from bcos_sdk.cli._terminal import count_of
from bcos_sdk.cli.predict import drawn_entry, image_entry
from bcos_sdk.concepts import DrawnDirection
from bcos_sdk.pictures import data_uri
from bcos_sdk.results import Failure

__all__ = ["failure_entry", "page_entries"]

_SIDE = 320


def page_entries(direction: DrawnDirection, place: int, label: str, manifest: Manifest) -> list[dict[str, Any]]:
    """The data of the images of one direction, which is section `place` of the page."""
    group = {
        "place": place,
        "title": f"{direction.layer.layer} · direction {direction.number}",
        "text": _describe(direction, label),
    }
    entries = []
    for drawn in direction.drawn:
        feature = drawn_entry("Feature", drawn.value)
        place_text = f" at {drawn.example.position}" if drawn.example.position else ""
        feature["target"] |= {"unit": "value", "label": f"direction {direction.number}{place_text}"}
        feature["views"]["rgba"] = data_uri(drawn.weights, _SIDE)
        whole = drawn_entry(f"Class {label}", drawn.explained.explanations[0])
        entry = image_entry(drawn.explained, manifest, drawn.image, [feature, whole])
        entries.append(entry | {"group": group, "name": PurePath(drawn.example.source).name})
    return entries


def failure_entry(failure: Failure) -> dict[str, Any]:
    """The data of an image that has no result."""
    return {
        "name": PurePath(failure.source).name,
        "source": failure.source,
        "error": {"code": failure.code, "message": failure.message, "hint": hint_here(failure.hint)},
    }


def _describe(direction: DrawnDirection, label: str) -> str:
    concept = direction.concept
    counts = ", ".join(f"{count} for {name}" for name, count in list(concept.class_counts.items())[:4])
    what = f"{concept.contribution:.2f} to the logit {concept.logit:.2f} of {label}"
    partial = ""
    if direction.layer.partial:
        partial = " A path goes round this layer, so contributions are a share of the logit."
    return (
        f"Taken from {PurePath(concept.source).name}, where it adds {what}. Of the "
        f"{count_of(concept.counted, 'image')} that activate it most, the model takes {counts}.{partial}"
    )
