"""Call functions of the browser's modules in Node, with arrays of numpy."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["MODULES", "call", "run_node"]

MODULES = Path(__file__).resolve().parents[2] / "bcos_sdk" / "web" / "bcos"
_TYPES = {"uint8": "Uint8Array", "uint16": "Uint16Array", "float32": "Float32Array", "float64": "Float64Array"}
_CALLER = Path(__file__).with_name("node_caller.mjs")


def run_node(*arguments: str, given: str | None = None) -> str:
    """What Node prints. The test is skipped if there is no Node, and fails if the program does."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node: on Debian, apt install nodejs runs these tests")
    done = subprocess.run([node, *arguments], input=given, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def call(module: str, calls: list[tuple[str, list[Any]]]) -> list[Any]:
    """The results of some functions of a module. An error is a result: its code and message."""
    listed = json.dumps([(name, [_packed(one) for one in arguments]) for name, arguments in calls])
    printed = run_node(str(_CALLER), (MODULES / module).as_uri(), given=listed)
    results: list[Any] = [_unpacked(one) for one in json.loads(printed)]
    return results


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"type": _TYPES[value.dtype.name], "base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, bytes):
        return _packed(np.frombuffer(value, np.uint8))
    if isinstance(value, dict):
        return {key: _packed(inner) for key, inner in value.items()}
    return [*map(_packed, value)] if isinstance(value, (list, tuple)) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict) and "base64" in value:
        kind = value["type"].removeprefix("Big").replace("Clamped", "").removesuffix("Array").lower()
        return np.frombuffer(base64.b64decode(value["base64"]), kind)
    if isinstance(value, dict):
        return {key: _unpacked(inner) for key, inner in value.items()}
    return [*map(_unpacked, value)] if isinstance(value, list) else value
