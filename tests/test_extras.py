"""Which versions of torch the exporter was tested with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bcos_sdk import _extras
from bcos_sdk._extras import installed_version, torch_support
from bcos_sdk.cli import main

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ("2.5.1", "older than 2.6, the oldest supported version"),
        ("1.13.1", "older than 2.6, the oldest supported version"),
        ("2.6.0", "tried"),
        ("2.7.1+cu128", "not tried, but 2.6 and 2.13 were"),
        ("2.8.0", "tried"),
        ("2.13.1+cpu", "tried"),
        ("2.14.0a0+git1234", "newer than 2.13, the newest version that was tried"),
        ("3.0", "newer than 2.13, the newest version that was tried"),
    ],
)
def test_support_of_a_torch_version(installed: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_extras, "_TRIED_TORCH", ("2.6.0", "2.8.0", "2.13.0"))
    assert torch_support(installed) == expected


def test_the_oldest_tried_torch_is_the_oldest_that_can_be_installed() -> None:
    (oldest,) = re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert _extras._TRIED_TORCH[0].startswith(f"{oldest}.")


def test_the_torch_of_ci_is_tried() -> None:
    (pinned,) = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    assert torch_support(pinned) == "tried"


def test_doctor_tells_whether_torch_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    from bcos_sdk.backends._probe import Outcome
    from bcos_sdk.cli import _doctor_command

    monkeypatch.setattr(_doctor_command, "examine_device", lambda device: Outcome(None, "fp32"))
    monkeypatch.setattr(_doctor_command, "installed_version", lambda name: {"torch": "2.5.1"}.get(name))
    run = CliRunner().invoke
    assert "2.5.1, older than 2.6, the oldest supported version\n" in run(main, ["doctor"]).stdout
    assert (
        json.loads(run(main, ["doctor", "--json"]).stdout)["torch_support"]
        == "older than 2.6, the oldest supported version"
    )
    monkeypatch.setattr(_doctor_command, "installed_version", lambda name: None)
    assert json.loads(run(main, ["doctor", "--json"]).stdout)["torch_support"] is None
    assert installed_version("no-such-package") is None
