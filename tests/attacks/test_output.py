"""Hostile text in names, labels, manifests and registries: it is shown, but controls no terminal, log or table."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.attacks import HELD, attack, no_attack
from support.bundles import LABELS, copy_of, edit_manifest, small_bundle
from support.export_extra import onnx
from support.predicting import add_image
from support.terminals import HOSTILE, effects_in, output_of, shown_on_terminal

import bcos_sdk
from bcos_sdk import read_results
from bcos_sdk._logs import log
from bcos_sdk._progress import Progress
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.cli import main
from bcos_sdk.cli._terminal import print_traceback
from bcos_sdk.errors import BcosError, BundleError, InputError, RegistryError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not allow every name")

RAW = "raw control characters reached the terminal"


def in_output(what: str, before: str) -> pytest.MarkDecorator:
    return attack("output", what, before=before)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder and an empty store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "store"))
    return tmp_path


@pytest.fixture
def model(place: Path) -> Path:
    """A stored bundle whose manifest has hostile text wherever it has text, with right hashes."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["labels"] = [f"={HOSTILE}{label}" for label in LABELS]
        manifest["model"] |= {"name": HOSTILE, "module": HOSTILE}
        manifest["versions"] = {HOSTILE: HOSTILE}
        manifest["float_layers"] = [HOSTILE]

    folder = copy_of(small_bundle(), place / "store" / "hostile")
    edit_manifest(folder, change)
    return folder


@pytest.fixture
def images(place: Path) -> Path:
    """A folder with an image and two files that are none. Names and the text of a file are hostile."""
    folder = place / "images"
    add_image(folder / f"{HOSTILE}.png")
    (folder / f"{HOSTILE}broken.png").write_text(HOSTILE, "utf-8")
    (folder / f"{HOSTILE}empty.jpg").write_bytes(b"")
    return folder


def registry(folder: Path) -> Path:
    """A registry whose entry has hostile text."""
    text = HOSTILE.replace("\U000e0041", "")  # YAML has no surrogate pairs
    entry = {"base": "resnet18", "description": text, "labels": [text, "b"], "architecture": {"classes": 2}}
    path = folder / "mine.yaml"
    path.write_text(json.dumps({"schema": 1, "models": {"mine": entry}}), "utf-8")
    return path


PREDICT = {
    "as text": ((), "labels and the model's name forged lines"),
    "explained": (("--explain",), "labels forged lines"),
    "as JSON Lines": (("--format", "jsonl"), "the model's name forged a line"),
    "as CSV": (("--format", "csv"), "names and labels forged lines"),
    "with a report": (("--report", "--out", "out"), "the model's name forged lines"),
}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=in_output(f"`predict` {name} on a terminal, hostile names", before))
        for name, (options, before) in PREDICT.items()
    ],
)
def test_predict_on_a_real_terminal(model: Path, images: Path, options: tuple[str, ...]) -> None:
    shown = shown_on_terminal(["predict", images, "--model", model, "--device", "cpu", *options])
    assert "1 done, 2 failed" in shown
    assert "FORGED line" in shown, "shown, as a part of a line"
    assert effects_in(shown) == set()


Command = Callable[[Path, Path], list[object]]
COMMANDS: dict[str, tuple[Command, str]] = {
    "predict, piped as CSV": (lambda model, images: ["predict", images, "--model", model, "--format", "csv"], RAW),
    "predict, piped as JSON Lines": (
        lambda model, images: ["predict", images, "--model", model, "--format", "jsonl"],
        RAW,
    ),
    "predict, a pattern without files": (
        lambda model, _: ["predict", f"{HOSTILE}*.png", "--model", model],
        "forged lines",
    ),
    "predict, a list that is an image": (
        lambda model, images: ["predict", f"@{next(iter(images.iterdir()))}", "--model", model],
        HELD,
    ),
    "predict, an unknown target": (
        lambda model, images: ["predict", images, "--model", model, "--target", HOSTILE],
        HELD,
    ),
    "predict, no such model": (lambda _, images: ["predict", images, "--model", f"/no/{HOSTILE}"], HELD),
    "inspect": (lambda model, _: ["inspect", model], RAW),
    "inspect as JSON": (lambda model, _: ["inspect", model, "--json"], HELD),
    "inspect, not a graph": (lambda _, images: ["inspect", rename(images, ".onnx")], HELD),
    "validate": (lambda model, _: ["validate", model.rename(model.parent / HOSTILE), "--device", "cpu"], RAW),
    "validate, not a bundle": (lambda _, images: ["validate", images / HOSTILE], HELD),
    "models list": (lambda _model, _: ["models", "list"], RAW),
    "models list as JSON": (lambda _model, _: ["models", "list", "--json"], HELD),
    "models labels": (lambda model, _: ["models", "labels", model], RAW),
    "models show": (lambda model, _: ["models", "show", "mine", "--registry", registry(model.parent)], RAW),
    "models show as JSON": (
        lambda model, _: ["models", "show", "mine", "--json", "--registry", registry(model.parent)],
        RAW,
    ),
    "models, a faulty registry": (lambda _, images: ["models", "--registry", faulty(images)], HELD),
    "models, no YAML": (lambda _, images: ["models", "--registry", next(iter(images.iterdir()))], HELD),
    "models remove": (lambda _model, _: ["models", "remove", HOSTILE], HELD),
    "export, no such model": (lambda _model, _: ["export", HOSTILE], HELD),
    "a wrong option": (lambda _model, _: ["predict", f"--{HOSTILE.replace('=', '')}"], HELD),
    "a wrong command": (lambda _model, _: [HOSTILE], HELD),
    "a wrong value": (lambda _model, _: ["predict", "x", "--save", HOSTILE], RAW),
}


def rename(images: Path, suffix: str) -> Path:
    path = next(iter(images.glob("*broken*")))
    return path.rename(path.with_suffix(suffix))


def faulty(images: Path) -> Path:
    path = images / f"{HOSTILE}.yaml"
    path.write_text(json.dumps({"models": {HOSTILE: {HOSTILE: HOSTILE}}}), "utf-8")
    return path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            command,
            id=name,
            marks=[
                in_output(f"`{name}` with hostile text", before),
                *([pytest.mark.needs_torch] if name.startswith("inspect") else []),
            ],
        )
        for name, (command, before) in COMMANDS.items()
    ],
)
def test_no_command_prints_a_control_character(model: Path, images: Path, command: Command) -> None:
    shown = output_of(command(model, images))
    assert "FORGED" in shown or "\\ufeff" in shown
    assert effects_in(shown) == set()


@in_output("`doctor` with hostile folders", "raw control characters reached the terminal")
def test_doctor(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(model.parent.rename(model.parent.with_name(HOSTILE))))
    monkeypatch.setenv("BCOS_SDK_CACHE", f"/cache/{HOSTILE}")
    shown = output_of(["doctor"])
    assert shown.count("FORGED line") >= 2
    assert effects_in(shown) == set()


@pytest.mark.needs_torch
@in_output("names inside an ONNX file that `inspect` shows", RAW)
def test_inspect_of_a_hostile_graph(place: Path) -> None:
    value = onnx.helper.make_tensor_value_info(HOSTILE, onnx.TensorProto.FLOAT, [HOSTILE, 3])
    node = onnx.helper.make_node(HOSTILE, [HOSTILE], [HOSTILE])
    graph = onnx.helper.make_graph([node], HOSTILE, [value], [value])
    file = place / f"{HOSTILE}.onnx"
    file.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    for options in ((), ("--json",)):
        shown = output_of(["inspect", file, *options])
        assert "FORGED line" in shown
        assert effects_in(shown) == set()


@pytest.mark.needs_torch
@in_output("the name of a node that fails", "ONNX Runtime itself wrote raw control characters to stderr")
def test_a_node_that_fails_in_the_runtime(capfd: pytest.CaptureFixture[str]) -> None:
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in "xy"]
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [7, 7])
    node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"], name=HOSTILE)
    graph = onnx.helper.make_graph([node], "graph", values[:1], values[1:], [shape])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    session = CPU.open_session(model.SerializeToString())
    with pytest.raises(Exception, match="FORGED"):
        session.run(None, {"x": np.zeros((2, 3), np.float32)})
    assert effects_in("".join(capfd.readouterr())) == set()


@pytest.mark.needs_torch
@in_output("labels, paths and keys of a checkpoint that `export` shows", RAW)
def test_export_of_a_hostile_checkpoint(place: Path) -> None:
    import torch

    from bcos_sdk.models import build_model

    name = "cifar10_plain9_b2-nomaxout"
    weights, wrong, labels = place / f"{HOSTILE}.pth", place / f"{HOSTILE}2.pth", place / f"{HOSTILE}.txt"
    torch.save({f"{HOSTILE}": build_model(name).state_dict()}, weights)
    torch.save({f"{HOSTILE}{number}": torch.zeros(3) for number in range(3)}, wrong)
    label = HOSTILE.replace("\r\n", "")
    labels.write_text("\n".join(f"{number}{label}" for number in range(10)), "utf-8")
    done = output_of(
        ["export", name, "--weights", weights, "--labels", labels, "-o", place / HOSTILE, "--max-batch", 1]
    )
    assert "Next:" in done
    for shown in (done, output_of(["export", name, "--weights", wrong, "-o", place / "other"])):
        assert "FORGED line" in shown
        assert effects_in(shown) == set()


@in_output("hostile lines in a record that `--resume` reads", RAW)
def test_a_damaged_record(model: Path, images: Path) -> None:
    arguments = ["predict", images, "--model", model, "--device", "cpu", "--out", "out"]
    output_of(arguments)
    with Path("out/results.jsonl").open("a", encoding="utf-8") as record:
        record.write(json.dumps({"kind": "Prediction", "name": "x", "result": {HOSTILE: HOSTILE}}) + "\n")
        record.write(json.dumps({"kind": HOSTILE, "name": HOSTILE}) + "\n")
    shown = output_of([*arguments, "--resume"])
    assert "is damaged and skipped" in shown
    assert effects_in(shown) == set()


@in_output("a record of results with control characters, shown with `cat`", RAW)
def test_files_of_json_lines_can_be_shown(model: Path, images: Path) -> None:
    output_of(["predict", images, "--model", model, "--device", "cpu", "--report", "--out", "out"])
    for name in ("results.jsonl", ".report.jsonl"):
        assert effects_in(Path("out", name).read_text("utf-8")) == set()
    sources = {result.source for result in read_results("out/results.jsonl")}
    assert sources == {str(path) for path in images.iterdir()}, "exact"


FORMULAS = ("=1+1", "@SUM(A1)", "+1", "-1", "\uff1d1+1", "a;=1+1", "\t=1", "\r=1", ' ",=1')


@in_output("formulas in file names and labels, as CSV", "cells began with =, which spreadsheets run")
def test_no_cell_of_csv_is_a_formula(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    names = [f"{formula}.png" for formula in FORMULAS]
    for name in names:
        add_image(Path(name))
    Path("list").write_bytes(b"\0".join(map(os.fsencode, names)))
    result = CliRunner().invoke(main, ["predict", "-0", "@list", "--model", str(model), "--format", "csv"])
    rows = [*csv.DictReader(io.StringIO(result.stdout))]
    assert len(rows) == 5 * len(names)
    for row in rows:
        parts = [part for cell in (row["source"], row["label"]) for part in cell.split(";")]
        assert not [part for part in parts if part.startswith(tuple("=+-@\uff1d\t\r"))]
        assert all(map(math.isfinite, (float(row["logit"]), float(row["probability"]), int(row["class"]))))
    assert any(row["logit"].startswith("-") for row in rows), "numbers stay numbers"
    assert {row["source"] for row in rows} >= {"'=1+1.png", "'-1.png", "a;'=1+1.png", "\\t=1.png"}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What an application writes to its log: its own handler with its own format."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    log.addHandler(handler)
    yield text
    log.removeHandler(handler)


@in_output("a forged line in the log of an application", "the line was forged")
def test_the_log_of_an_application(place: Path, logged: io.StringIO) -> None:
    file = place / f"{HOSTILE}.jsonl"
    file.write_text(json.dumps({"kind": "Failure", "result": {HOSTILE: 1}}) + "\n", "utf-8")
    assert list(read_results(file, on_error="skip")) == []
    shown = logged.getvalue()
    assert shown.startswith("line 1 of")
    assert shown.count("\n") == 1
    assert effects_in(shown) == set()


@no_attack
def test_every_module_logs_to_the_logger_that_escapes() -> None:
    """A filter of a logger does not see the records of the loggers below it."""
    package = Path(bcos_sdk.__file__).parent
    folders = (package, package / "cli", package / "exporters")  # rglob does not follow links
    modules = {path.resolve() for folder in folders for path in folder.rglob("*.py")}
    assert len(modules) > 150
    found = {path.name for path in modules if "getLogger" in path.read_text("utf-8")}
    configuring = {"_log_format.py", "_cluster.py"}  # they set what is written of the logs of others
    assert found == {"_logs.py", *configuring}


@no_attack
def test_only_one_module_of_the_command_line_prints() -> None:
    """The others would have to remember to escape."""
    folder = Path(bcos_sdk.__file__).parent / "cli"
    printing = re.compile(r"click\.s?echo|click\.confirm|click\.prompt|std(out|err)\.write|^\s+print\(", re.MULTILINE)
    found = {path.name for path in folder.rglob("*.py") if printing.search(path.read_text("utf-8"))}
    assert found == {"_terminal.py", "_child_processes.py"}, "the latter is read by its parent process"


@in_output("the label of a progress bar", RAW)
def test_a_progress_bar() -> None:
    assert effects_in(Progress(2, "MB", label=HOSTILE, shown=False).line()) == set()


@in_output("an exception that nobody handles, with a hostile message", RAW)
def test_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError as error:
        print_traceback(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "RuntimeError: " in shown
    assert effects_in(shown) == set()


@pytest.mark.parametrize(
    "error",
    [
        InputError(f"cannot read {HOSTILE}", source=HOSTILE, hint=f"Remove {HOSTILE}."),
        BundleError(f"a library says: {HOSTILE}", source="other"),
        RegistryError("it has faulty keys:", source=HOSTILE, problems=(HOSTILE, "b")),
        InputError("late").about(HOSTILE),
    ],
    ids=lambda error: type(error).__name__,
)
@in_output("the text of an error that an application prints", RAW)
def test_the_text_of_an_error(error: BcosError) -> None:
    assert effects_in(str(error)) == set()
    assert effects_in(error.message) == set()
    assert error.source in (HOSTILE, "other"), "exact"
