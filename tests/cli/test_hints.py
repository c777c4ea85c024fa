"""Hints that the command line prints name its options, not arguments of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from PIL import Image
from support.bundles import copy_of, small_bundle

import bcos_sdk
from bcos_sdk.cli import main
from bcos_sdk.cli._hints import command_hint

PACKAGE = Path(bcos_sdk.__file__).parent
ROOMS = ("backends", "bundle", "client", "concepts", "evaluation", "images", "registry", "triton", "web", "weights")
OF_PYTHON = re.compile(
    r"=(True|False)\)|\b(Limits|Remote|Client|load_model|export|explain)\([^)]|"
    r"\b(device|precision|weights|force|overwrite|output)=|client\.labels|_stream\b"
)


@pytest.mark.parametrize(
    ("hint", "option", "with_option", "without"),
    [
        ("Pass --force (force=True) to replace it.", "--force", "Pass --force to replace it.", None),
        (
            "Make the image smaller, or raise Limits(pixels=…).",
            "--max-pixels",
            "Make the image smaller, or raise --max-pixels.",
            "Make the image smaller.",
        ),
        (
            "Make the image smaller: Limits(pixels=…) can be raised to at most 9,000.",
            "--max-pixels",
            "Make the image smaller: --max-pixels can be raised to at most 9,000.",
            "Make the image smaller.",
        ),
        ("Allowed formats are PNG, GIF. Limits(formats=…) sets others.", "", "Allowed formats are PNG, GIF.", None),
        ("Pass Remote(token=…) with the token.", "--token-file", "Pass --token-file FILE with the token.", ""),
        ("Pass the file: --weights FILE, or load_model(a, weights=b).", "", "Pass the file: --weights FILE.", None),
        ("Choose: --output-name X, or export(…, output='X').", "", "Choose: --output-name X.", None),
        (
            'Use device="cpu", or device="auto" for others.',
            "--device",
            "Use --device cpu, or --device auto for others.",
            "",
        ),
        ("Choose another folder. Then, or later, wait (a minute).", "", None, None),
    ],
)
def test_arguments_become_options_or_are_left_out(
    hint: str, option: str, with_option: str | None, without: str | None
) -> None:
    expected = hint if with_option is None else with_option
    assert command_hint(hint, {option}) == expected
    assert command_hint(hint, ()) == (expected if without is None else without)


def options_of(command: click.Command) -> frozenset[str]:
    return frozenset(name for param in command.params for name in param.opts)


def written_hints() -> Iterator[tuple[str, str]]:
    """Every text that the source passes as `hint`, with its place; values are written as X."""
    files = [file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")]
    files += [PACKAGE / "errors.py", *(PACKAGE / "exporters").resolve().rglob("*.py")]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            value: ast.expr | None = None
            if (isinstance(node, ast.keyword) and node.arg == "hint") or (
                isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "hint"
            ):
                value = node.value
            for text in () if value is None else texts(value):
                yield f"{file.name}:{node.lineno}", text  # type: ignore[attr-defined]


def texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def test_no_hint_of_the_library_reaches_the_command_line_in_python() -> None:
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    every = {frozenset[str](), *(options_of(command) for command in commands if command is not None)}
    hints = [*written_hints()]
    assert len(hints) > 150
    assert sum(OF_PYTHON.search(hint) is not None for _, hint in hints) > 20
    found = {
        f"{place}: {said}"
        for place, hint in hints
        for options in every
        if OF_PYTHON.search(said := command_hint(hint, options))
    }
    assert found == set()


def test_common_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = str(copy_of(small_bundle(), tmp_path / "bundle"))
    Image.new("RGB", (40, 30)).save("small.png")
    Path("bad.png").write_text("no image")
    arguments = ["predict", "small.png", "--model", bundle, "--device", "cpu"]
    assert CliRunner().invoke(main, ["triton", bundle, "models"]).exit_code == 0
    Path("full").mkdir()
    Path("full", "file").write_text("")
    commands = {
        "Pass --force to replace it": ["export", "resnet18", "-o", bundle],
        "Pass --overwrite to replace": ["triton", bundle, "models"],
        "`bcos-sdk models labels MODEL` lists all labels, for example tabby": [*arguments, "--target", "qqqq"],
        "is no address of a model": ["predict", "small.png", "--model", "http://me@host/model"],
        "--token-file FILE": ["predict", "small.png", "--model", "http://me@host/model"],
        "not an image of an allowed format": ["predict", "bad.png", *arguments[2:]],
        "the limit is 10": [*arguments, "--max-pixels", "10"],
        "there is no exported model": ["predict", "small.png", "--model", "none"],
    }
    for expected, command in commands.items():
        result = CliRunner().invoke(main, command)
        assert result.exit_code != 0, command
        assert expected in result.stderr
        assert "=True)" not in result.stderr
        assert "Limits(" not in result.stderr
        assert "Remote(" not in result.stderr
    CliRunner().invoke(main, ["predict", "bad.png", "small.png", "--report", *arguments[2:], "--out", "out"])
    assert "Limits(" not in Path("out", "report.html").read_text("utf-8")
