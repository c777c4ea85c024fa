"""The examples of the documentation run, and its tables are up to date."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.attacks import collect_attacks
from support.reports import model_record, sample_report
from support.scripts import load_script
from support.signers import Authority

from bcos_sdk import BcosError, Prediction, errors
from bcos_sdk.bundle import SIGNATURE
from bcos_sdk.cli import main
from bcos_sdk.cli._commands import COMMANDS
from bcos_sdk.cli.benchmark import Report
from bcos_sdk.ray import arrow_schema

ROOT = Path(__file__).resolve().parents[1]


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL)


def script(name: str) -> types.ModuleType:
    return load_script(f"docs/{name}.py")


def test_the_page_of_commands_names_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert set(re.findall(r"^\| `bcos-sdk ([a-z]+)", page, re.MULTILINE)) == COMMANDS.keys()


def test_the_benchmarks_page_is_made_from_the_report() -> None:
    make_benchmarks = script("make_benchmarks")
    report = Report.from_json(make_benchmarks.DATA.read_bytes())
    assert make_benchmarks.PAGE.read_text("utf-8") == make_benchmarks.page(report), "run python docs/make_benchmarks.py"
    assert make_benchmarks.PLOT.is_file()


def test_the_benchmarks_page_has_a_table_for_every_model() -> None:
    page = script("make_benchmarks").page(sample_report(model_record(), model_record("vgg11_bnu", notes=("a note",))))
    assert "| explain, cpu | 8 | 20.0 | 10.0 | 50.0 | 2.50 | 1.40 |" in page
    assert "| explain ÷ conventional in ONNX Runtime, batch 8 | resnet50 | ≤ 2.3 on openvino, 2.7 on cpu | 2.50" in page
    assert "| cpu | 100 | 80.0 | 0.80 | 32 | 72.0 | 0.90 | 400 | 2.50 |" in page
    assert "## vgg11_bnu, 224×224, fp32, exported in 12.3 s" in page
    assert "*a note*" in page
    assert "{" not in page


def test_the_page_of_growth_is_made_from_its_data() -> None:
    make_growth = script("make_growth")
    data = json.loads(make_growth.DATA.read_bytes())
    assert make_growth.PAGE.read_text("utf-8") == make_growth.page(data), "run python docs/make_growth.py"
    assert make_growth.PLOT.is_file()


def test_a_point_off_the_line_of_growth_is_measured() -> None:
    make_growth = script("make_growth")
    points = [
        {"sweep": "images", "device": "cpu", "images": count, "seconds": 0.5 + 0.1 * count, "peak_mb": 100.0 + count}
        for count in (1, 2, 4, 8)
    ]
    x, y = make_growth.curve(points, "images", "cpu", "seconds")
    assert make_growth._off_the_line(x, y) < 1e-9
    y[-1] *= 2
    assert make_growth._off_the_line(x, y) > 0.1


def test_the_tables_are_up_to_date() -> None:
    make_tables = script("make_tables")
    for document in make_tables.DOCUMENTS:
        text = document.read_text("utf-8")
        assert text == make_tables.with_tables(text), "run python docs/make_tables.py"
    assert make_tables.model_table().count("\n| `") >= 26
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BcosError)]
    table = make_tables.error_table()
    assert len(kinds) > 30
    assert table.count("\n| `") == len(kinds) - 1
    for kind in set(kinds) - {BcosError}:
        assert f"| `{kind.__name__}` | `{kind.__bases__[0].__name__}` | `{kind.code}` |" in table


def test_the_page_of_ray_is_up_to_date() -> None:
    pytest.importorskip("pyarrow")
    make_ray = script("make_ray")
    text, figures = make_ray.PAGE.read_text("utf-8"), json.loads(make_ray.DATA.read_text("utf-8"))
    assert text == make_ray.with_tables(text, figures), "run python docs/make_ray.py"
    for name in arrow_schema().names:
        assert f"| `{name}` |" in text
    assert all(one["expected"] == one["found"] and not one["twice"] for one in figures["kills"])


def test_the_plan_of_ten_million_images() -> None:
    make_ray = script("make_ray")
    plan = {"explain_cpu_seconds": 0.36, "host_cpu_seconds": 0.012, "row_bytes": {"float16": 50_000, "none": 500}}
    plan |= {"shard_bytes": 80, "driver_bytes": 400, "resume_bytes": 800, "driver_base": 200e6, "worker_bytes": 600e6}
    table = make_ray.plan_table({"plan": plan})
    assert "| bytes read | 1.1 TB |" in table
    assert "| bytes written, float16 | 500.0 GB | 50.0 kB per image, 10,000 files |" in table
    assert "| 64 CPUs, 64 workers | 15.6 h | 0.360 CPU seconds per image |" in table
    assert "| memory of the driver | 4.2 GB |" in table
    assert "| 8 GPUs with 12 CPUs each, 8 workers | at least 21 min |" in table
    limits = make_ray.breaks_table({"plan": plan})
    assert "16 GB hold 39 million names, with `--resume` 19 million" in limits
    assert "they feed 990 CPUs" in limits


def test_each_case_of_an_attack_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_some.py").write_text("""
import pytest
from hypothesis import given, strategies
from support.attacks import HELD, attack

@attack("files", "two | cases", before="it hung")
@pytest.mark.parametrize("case", ["a", "b"])
def test_cases(case): raise AssertionError("tests are collected, not run")

@attack("images", "any number", before=HELD)
@given(strategies.integers())
def test_random(number): ...
""")
    make_tables = script("make_tables")
    found = tuple(collect_attacks(tmp_path))
    monkeypatch.setattr(make_tables, "attacks", lambda: found)
    assert make_tables.attack_table().splitlines()[2:] == [
        "| Image files | any number | random inputs | held | holds |",
        "| Other files: manifests, lists, records, YAML, checkpoints | two \\| cases | 2 | it hung | fixed |",
    ]
    assert make_tables.attack_totals().splitlines()[-1] == "| **all** | 3 | 1 | 2 |"


@pytest.mark.parametrize(
    ("mark", "message"), [("", "has neither @attack"), ("@attack('air', 'a', before='b')", "has the area 'air'")]
)
def test_a_test_of_attacks_must_say_what_it_is(mark: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(f"from support.attacks import attack\n{mark}\ndef test_some(): ...")
    with pytest.raises(RuntimeError, match=message):
        collect_attacks(tmp_path)


@pytest.mark.needs_torch
def test_the_page_of_operators_is_up_to_date() -> None:
    make_tables = script("make_tables")
    text = make_tables.OPERATORS_PAGE.read_text("utf-8")
    assert text == make_tables.with_tables(text), "run python docs/make_tables.py"
    rows = make_tables.operator_table().splitlines()
    assert any(row.startswith("| linear maps |") and "`conv2d`" in row for row in rows)
    assert any("`exp`" in row.split("|")[3] for row in rows), "exp is for frozen values only"
    assert not any("`exp`" in row.split("|")[2] for row in rows)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample photographs and nothing else, like a fresh clone."""
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_runs_as_printed(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = python_blocks(ROOT / "README.md")
    exec(block, {})
    assert (clone / "why.png").is_file()
    found = [line.split() for line in capsys.readouterr().out.splitlines()[::2]]
    assert [(words[0], words[-2]) for words in found] == [("samples/cat-1.jpg", "cat"), ("samples/dog.jpg", "dog")]


def test_the_guide_to_the_client_runs_as_printed(clone: Path) -> None:
    blocks = python_blocks(ROOT / "docs" / "client.md")
    assert len(blocks) == 7
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    prediction = asyncio.run(names["handle"]((clone / "samples" / "cat-1.jpg").read_bytes()))
    assert Prediction.from_json(prediction).classes[0].label == "cat"
    assert names["cat"].bias == {"logit_bias": pytest.approx(-2.197, abs=1e-3)}
    written = {"why.png", "rgba.png", "arrays.npz", "where.png", "results.jsonl"}
    assert {path.name for path in clone.iterdir()} == {"samples"} | written
    names["client"].close()


def test_the_pages_about_layers_run_as_printed(clone: Path) -> None:
    (block,) = python_blocks(ROOT / "docs" / "layers.md")
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["e"].completeness.passed
    assert names["e"].value == pytest.approx(names["f"].activation, rel=1e-4)
    (block,) = python_blocks(ROOT / "docs" / "concepts.md")
    exec(block, {})
    assert (clone / "sheet.png").is_file()


def test_the_service_runs_as_printed(clone: Path) -> None:
    from fastapi.testclient import TestClient

    (block,) = python_blocks(ROOT / "docs" / "service.md")
    photograph = (clone / "samples" / "cat-1.jpg").read_bytes()
    model: dict[str, object] = {"__name__": "service"}
    sys.modules["service"] = types.ModuleType("service")  # FastAPI resolves the annotations in this module
    exec(block, model)
    vars(sys.modules["service"]).update(model)
    with TestClient(model["app"]) as service:  # type: ignore[arg-type]
        good = service.post("/explain?target=dog", content=photograph)
        assert good.status_code == 200
        assert good.json()["explanations"][0]["target"]["label"] == "dog"
        assert good.json()["explanations"][0]["completeness"]["passed"] is True
        for query, body, status, code in (
            ("", b"text", 415, "image_unreadable"),
            ("", b"x" * (9 << 20), 413, "image_too_large"),
            ("?target=nobody", photograph, 422, "unknown_target"),
        ):
            bad = service.post(f"/explain{query}", content=body)
            assert (bad.status_code, bad.json()["code"]) == (status, code)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_page_about_signatures_runs_as_printed(clone: Path) -> None:
    page = ROOT / "docs" / "signing.md"
    digest, check = python_blocks(page)
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    _install, key, certificate, sigstore = (block for language, block in fences if not language)
    run_lines(key)
    names: dict[str, Any] = {}
    for block in (digest, check):
        exec(block, names)
        names["client"].close()
    (clone / "out" / "model" / SIGNATURE).unlink()
    authority = Authority(clone)
    between = authority.issue("intermediate", is_authority=True)
    authority.issue("alice", email="alice@example.com", issuer=between)
    run_lines(certificate)
    assert "--sigstore" in sigstore, "it needs the network"


def run_lines(block: str) -> None:
    """Run each line of a block of shell commands."""
    for command, *arguments in map(str.split, block.splitlines()):
        if command == "bcos-sdk":
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, (arguments, result.output)
        else:
            subprocess.run([command, *arguments], check=True, capture_output=True)


def test_the_guide_to_your_own_module_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    fine_tuned, export, run = python_blocks(ROOT / "docs" / "own_module.md")
    assert len(export.splitlines()) <= 40
    exec(fine_tuned, names)
    assert names["bundle"].manifest.labels == ("cat", "dog")  # type: ignore[attr-defined]
    exec(export + run, names)
    logits, total = np.asarray(names["logits"]), np.asarray(names["total"])
    classes = np.asarray(names["classes"])
    expected = np.concatenate([logits, logits.mean(axis=1, keepdims=True)], axis=1)
    np.testing.assert_allclose(total, np.take_along_axis(expected, classes, axis=1), rtol=1e-5, atol=1e-6)
    assert names["bundle"].manifest.bias_terms == ("head.bias",)  # type: ignore[attr-defined]
