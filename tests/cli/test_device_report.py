"""`bcos-sdk doctor` and its report: each device in a process of its own, and every way in which that ends is a row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.bundles import small_bundle
from support.gpu_machine import GpuMachine, forget

from bcos_sdk.backends import RUNTIMES, Device, Outcome
from bcos_sdk.backends.onnxruntime import CPU, CUDA
from bcos_sdk.backends.tensorrt import TENSORRT
from bcos_sdk.bundle import BUILTIN_SHA256, open_bundle
from bcos_sdk.cli import _device_process, _device_report, _doctor_command, main
from bcos_sdk.cli._device_process import examine_device, measure_device, reply_to, run_child
from bcos_sdk.cli._device_report import measured_rows, report_table

USUAL = {"tf32": False, "cuda_graphs": False}
FIGURES = {
    "precision": "fp32",
    "start_seconds": 1.0,
    "residual": 1e-7,
    "weights_error": 1e-6,
    "milliseconds": {"predict 1": 1.0, "explain 1": 2.0, "predict 8": 3.0, "explain 8": 4.0},
}


def doctor(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def child(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let child processes run this program instead."""
    monkeypatch.setattr(_device_process, "python_command", lambda _program, *_job: [sys.executable, "-c", program])


KILL = "import os, signal\nos.kill(os.getpid(), signal.SIG{})"
ENDS = {
    "SEGV": (KILL.format("SEGV"), "the process that ran it crashed with signal 11 (SIGSEGV)"),
    "exit": ("import sys\nsys.exit('no library')", "the process that ran it ended with code 1: no library"),
    "nothing": ("", "the process that ran it gave no reply"),
    "no JSON": ("print('CUDA says hello')", "the process that ran it gave no reply"),
    "crash at exit": (
        'print(\'{"problem": null, "residual": 1}\', flush=True)\n' + KILL.format("ABRT"),
        "it did what was asked, but then its process crashed with signal 6 (SIGABRT)",
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_every_end_of_a_child_is_a_problem(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    program, problem = ENDS[how]
    child(monkeypatch, "import sys\nsys.stderr.write('what the driver said\\n')\nsys.stderr.flush()\n" + program)
    reply = run_child({"task": "measure"})
    assert reply["problem"].startswith(problem) or (how == "exit" and "no library" in reply["problem"])
    assert "what the driver said" in reply["messages"]
    assert reply.get("residual") == (1 if how == "crash at exit" else None)
    assert problem.split(":")[0] in str(examine_device(Device(CPU)).problem)


def test_a_child_that_hangs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device_process, "_SECONDS", 0.2)
    child(monkeypatch, "import time\ntime.sleep(60)")
    assert run_child({})["problem"] == "it did not end within 0.2 s"


def test_an_error_of_a_binding_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pybind11 raises RuntimeError and TypeError, which are no errors of this package."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("cuModuleLoad\nfailed")

    bundle = small_bundle()
    monkeypatch.setattr(_device_process, "measure", broken)
    job = {"task": "measure", "device": "cpu", "path": str(bundle.path), "sha256": bundle.sha256, "options": USUAL}
    assert reply_to(job) == {"problem": "RuntimeError: cuModuleLoad failed"}
    assert "in broken" in capsys.readouterr().err, "the stack is in the messages"
    monkeypatch.setattr(CUDA, "problem", broken)
    assert examine_device(Device(CUDA)).problem == "RuntimeError: cuModuleLoad failed"


def test_a_device_is_measured_in_a_child() -> None:
    """The reply of a real child, with the errors against the golden record."""
    row = measure_device(Device(CPU), small_bundle(), **USUAL)
    assert (row["problem"], row["precision"], row["device_used"]) == (None, "fp32", "cpu")
    assert 0 <= row["residual"] <= 1e-5
    assert 0 < row["weights_error"] < 1e-4
    assert min(row["milliseconds"].values()) > 0
    assert examine_device(Device(CPU)) == (None, "fp32")


def test_tensorrt_is_measured_on_the_simulated_gpu(machine: GpuMachine) -> None:
    bundle = small_bundle()
    job = {"task": "measure", "device": "tensorrt:0", "path": str(bundle.path), "sha256": bundle.sha256}
    for options in (USUAL, {**USUAL, "cuda_graphs": True}):
        row = reply_to({**job, "options": options})
        assert (row["problem"], row["device_used"]) == (None, "tensorrt:0")
    assert "launch" in machine.cuda.log
    assert reply_to({"task": "examine", "device": "tensorrt:1"}) == {"problem": None, "precision": "fp32"}


def test_every_model_and_option_has_a_row(machine: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device_report, "measure_device", lambda *_, **__: {"problem": None, **FIGURES})
    monkeypatch.setattr(TENSORRT, "problem", lambda index: None if index == 0 else "it is broken")
    half = open_bundle(small_bundle(precision="fp16").path)
    rows = list(measured_rows([small_bundle(), half]))
    options = [(row["model"], row["tf32"], row["cuda_graphs"]) for row in rows if row["device"] == "tensorrt:0"]
    name = half.manifest.model.name
    assert options == [
        (name, False, False), (name, False, True), (name, True, False), (name, False, False), (name, False, True)
    ]  # fmt: skip
    (unusable,) = [row for row in rows if row["device"] == "tensorrt:1"]
    assert (unusable["model"], unusable["problem"]) == (None, "it is broken")
    assert {row["device"].partition(":")[0] for row in rows} == {runtime.name for runtime in RUNTIMES}
    forget()


def test_the_table_has_every_problem() -> None:
    rows: list[dict[str, Any]] = [
        {"device": "tensorrt:0", "model": "a", **USUAL, "problem": None, **FIGURES},
        {"device": "tensorrt:0", "model": "a", **USUAL, "cuda_graphs": True, "problem": "no capture"},
        {"device": "tensorrt:0", "model": "a", **USUAL, "tf32": True, "problem": "too coarse"},
        {"device": "tensorrt:0", "model": "half", **USUAL, "problem": "no kernels"},
        {"device": "cuda:0", "model": None, **USUAL, "problem": "no cuDNN"},
    ]
    table = report_table(rows)
    assert table[1].split()[:3] == ["tensorrt:0", "fp32", "a"]
    assert table[2:] == [
        "tensorrt:0, a with CUDA graphs: no capture",
        "tensorrt:0, a with TF32: too coarse",
        "tensorrt:0, half: no kernels",
        "cuda:0: no cuDNN",
    ]


def test_the_report_is_written_after_each_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever ends the command, what was found before is in the file."""
    file = tmp_path / "report.json"
    models: list[str] = []
    seen: list[int | None] = []

    def rows(bundles: Any) -> Any:
        models.extend(bundle.manifest.model.name for bundle in bundles)
        for place in range(3):
            seen.append(len(json.loads(file.read_text("utf-8"))["measured"]) if place else None)
            if place == 2:
                raise RuntimeError("the command ends")
            yield {"device": "cuda:0", "model": str(place), **USUAL, "problem": "broken"}

    def outcome(device: Device) -> Outcome:
        assert str(device) not in json.loads(file.read_text("utf-8"))["devices"]
        return Outcome(None, "fp16")

    monkeypatch.setattr(_doctor_command, "examine_device", outcome)
    monkeypatch.setattr(_doctor_command, "measured_rows", rows)
    done = doctor("--report", file, "--model", small_bundle().path)
    assert done.exit_code != 0
    found = json.loads(file.read_text("utf-8"))
    assert [row["model"] for row in found["measured"]] == ["0", "1"]
    assert seen == [None, 1, 2]
    assert models == [*BUILTIN_SHA256, small_bundle().manifest.model.name], "the built-in models come first"
    assert set(found["precisions"].values()) == {"fp16"}
    assert doctor("--report", tmp_path / "no" / "folder.json").exit_code != 0


def test_doctor_says_what_a_gpu_with_fp16_only_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor_command, "examine_device", lambda device: Outcome(None, "fp16"))
    assert "works, fp16 only" in doctor().stdout


def test_doctor_lists_the_packages_of_tensorrt_for_one_version_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install tensorrt-cu12` installs no package of the name "tensorrt"."""
    found = {"tensorrt-cu12": "10.16.1", "tensorrt-cu12-bindings": "10.16.1", "onnxruntime": "1.31.1"}
    monkeypatch.setattr(_doctor_command, "installed_version", found.get)
    monkeypatch.setattr(_doctor_command, "examine_device", lambda device: Outcome(None, "fp32"))
    lines = [line.split() for line in doctor().stdout.splitlines()]
    assert ["tensorrt-cu12", "10.16.1"] in lines
    assert ["tensorrt-cu12-bindings", "10.16.1"] in lines
    assert not {"tensorrt", "tensorrt-cu13"} & {line[0] for line in lines}
    packages = json.loads(doctor("--json").stdout)["packages"]
    assert packages["tensorrt-cu13"] is None
    monkeypatch.setattr(_doctor_command, "installed_version", lambda name: None)
    assert ["tensorrt", "not", "installed"] in [line.split() for line in doctor().stdout.splitlines()]
