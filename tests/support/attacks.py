"""`@attack(…)` makes a test of `tests/attacks` a row of the table of attacks in docs/security.md."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pytest

__all__ = ["AREAS", "HELD", "Area", "attack"]

Area: TypeAlias = Literal[
    "graphs", "bundles", "images", "time", "privacy", "identity", "shared machines", "output", "files"
]
AREAS: dict[Area, str] = {
    "graphs": "ONNX files",
    "bundles": "Files of a bundle",
    "images": "Image files",
    "time": "Calls that never end",
    "privacy": "Telemetry",
    "identity": "Bundles of somebody else",
    "shared machines": "Other users of the machine",
    "output": "Text that reaches terminals, tables and pages",
    "files": "Other files: manifests, lists, records, YAML, checkpoints",
}

HELD = "held"
"""The value of `before` for an attack that never had an effect."""


def attack(area: Area, what: str, *, before: str) -> pytest.MarkDecorator:
    """Mark a test as an attack. `before` says what the attack did before the fix, or is `HELD`.

    Each case of a parametrized test counts as one attack.
    """
    return pytest.mark.attack(area=area, what=what, before=before)
