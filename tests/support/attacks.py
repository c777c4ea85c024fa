"""`@attack(…)` makes a test of `tests/attacks` a row of the table of attacks in docs/security.md.

`pytest -p support.attacks` writes the attacks that it collects to the file that BCOS_SDK_ATTACKS names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import pytest

__all__ = ["AREAS", "HELD", "Area", "Attack", "attack", "collect_attacks", "no_attack"]

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

_FOLDER = Path(__file__).resolve().parents[1] / "attacks"
_OUTPUT = "BCOS_SDK_ATTACKS"


@dataclass(frozen=True)
class Attack:
    """One attack as the tests state it."""

    test: str
    area: Area
    what: str
    before: str
    random: bool
    """Whether hypothesis chooses the inputs."""


def attack(area: Area, what: str, *, before: str) -> pytest.MarkDecorator:
    """Mark a test as an attack. `before` says what the attack did before the fix, or is `HELD`.

    Each case of a parametrized test counts as one attack.
    """
    return pytest.mark.attack(area=area, what=what, before=before)


no_attack = pytest.mark.no_attack
"""`@no_attack` marks a test beside the attacks that is none: it shows that good input passes, or checks the code."""


def collect_attacks(folder: Path = _FOLDER) -> list[Attack]:
    """All attacks of the tests below a folder, without running them. A test without a mark is an error."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary, "attacks.json")
        command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "support.attacks", str(folder)]
        paths = [str(Path(__file__).parents[1]), *filter(None, sys.path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), _OUTPUT: str(output)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=_FOLDER)
        if done.returncode:
            raise RuntimeError(f"pytest cannot collect the attacks:\n{done.stdout}{done.stderr}")
        return [Attack(**one) for one in json.loads(output.read_text("utf-8"))]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Called by pytest if this module is a plugin."""
    found = [asdict(_attack_of(item)) for item in session.items if item.get_closest_marker("no_attack") is None]
    Path(os.environ[_OUTPUT]).write_text(json.dumps(found), "utf-8")


def _attack_of(item: pytest.Item) -> Attack:
    mark = item.get_closest_marker("attack")
    if mark is None:
        raise pytest.UsageError(f"{item.nodeid} has neither @attack(…) nor @no_attack, see tests/support/attacks.py")
    if mark.kwargs["area"] not in get_args(Area):
        raise pytest.UsageError(
            f"{item.nodeid} has the area {mark.kwargs['area']!r}, expected one of {', '.join(AREAS)}"
        )
    test: Any = getattr(item, "obj", None)
    return Attack(item.nodeid, **mark.kwargs, random=getattr(test, "is_hypothesis_test", False))
