"""What the documentation says is what happens."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL)


def test_the_tables_in_the_readme_are_made_from_data() -> None:
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    make_tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_tables)
    text = (ROOT / "README.md").read_text("utf-8")
    assert text == make_tables.with_tables(text), "run python docs/make_tables.py"
    assert text.count("| `") == 26


def test_the_guide_to_own_modules_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    export, run = python_blocks(ROOT / "docs" / "own_module.md")
    assert len(export.splitlines()) <= 40
    exec(export + run, names)
    logits, total = np.asarray(names["logits"]), np.asarray(names["total"])
    classes = np.asarray(names["classes"])
    expected = np.concatenate([logits, logits.mean(axis=1, keepdims=True)], axis=1)
    np.testing.assert_allclose(total, np.take_along_axis(expected, classes, axis=1), rtol=1e-5, atol=1e-6)
    assert names["bundle"].manifest.bias_terms == ("head.bias",)  # type: ignore[attr-defined]
