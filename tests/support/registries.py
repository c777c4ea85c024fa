"""Registry files that are valid except for one key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

__all__ = ["ENTRY", "with_change", "write"]

ENTRY: dict[str, Any] = {
    "description": "a small one",
    "labels": "cifar10",
    "input": {"size": [32, 32], "resize": None, "crop": None},
    "architecture": {"family": "resnet", "block": "basic", "blocks": [1, 1], "stem": "cifar", "classes": 10},
}


def write(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return path


def with_change(path: str, value: object) -> dict[str, Any]:
    """Return a registry document with one entry, in which one key is changed."""
    entry = json.loads(json.dumps(ENTRY))
    node = entry
    *parents, last = path.split(".")
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
    return {"schema": 1, "models": {"mine": entry}}
