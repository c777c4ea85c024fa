"""The modules of the browser in Node."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.node import MODULES, run_node

from bcos_sdk.bundle import builtin_bundle


def test_modules_that_need_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_MODULES", str(MODULES))
    monkeypatch.setenv("BCOS_BUNDLE", str(builtin_bundle()))
    printed = run_node("--test", "--test-reporter=tap", str(Path(__file__).with_name("modules.test.mjs")))
    assert "# fail 0" in printed
    assert "# pass 9" in printed
