"""The child process that asks the driver and tries TensorRT: one for both, and what is known if it crashes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.gpu_machine import forget, install_empty, uninstall

from bcos_sdk.backends import Device, Driver, probe_driver
from bcos_sdk.backends.tensorrt import TENSORRT, _flavours, _look, flavour_problem, flavour_version

DRIVER = {"gpus": [{"name": "L4", "capability": "8.9"}], "cuda": "13.1", "version": "580.65"}


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget()
    monkeypatch.setattr(_flavours, "may_have_gpu", lambda: True)
    yield
    forget()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The child processes that were started."""
    found: list[Any] = []
    start = subprocess.Popen.__init__

    def watched(self: Any, command: Any, *rest: Any, **options: Any) -> None:
        found.append(command)
        start(self, command, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", watched)
    return found


def answers(monkeypatch: pytest.MonkeyPatch, *lines: object, end: str = "") -> None:
    """Let the child process write these lines and end in this way."""
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    program = f"import os, sys\nsys.stdout.write({text!r})\nsys.stdout.flush()\n{end}"
    monkeypatch.setattr(_look, "python_command", lambda _program: [sys.executable, "-c", program])


def test_one_process_asks_the_driver_and_tries_every_flavour(
    monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    install_empty(monkeypatch, "tensorrt", "tensorrt_rtx")
    good = [{"flavour": "tensorrt", "version": "11.4.0"}, {"flavour": "tensorrt_rtx", "version": "1.7.1"}]
    answers(monkeypatch, DRIVER, *good)
    assert Device(TENSORRT).problem() is None
    assert probe_driver() == Driver.model_validate(DRIVER)
    assert (flavour_version("tensorrt"), flavour_version("tensorrt_rtx")) == ("11.4.0", "1.7.1")
    assert flavour_problem("tensorrt_rtx", 0) is None
    assert len(started) == 1


def test_a_crash_of_one_flavour_does_not_hide_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    install_empty(monkeypatch, "tensorrt", "tensorrt_rtx")
    answers(monkeypatch, DRIVER, end="os.abort()")
    later: list[str] = []

    def run_worker(job: dict[str, Any]) -> dict[str, str]:
        later.append(job["flavour"])
        return {"version": "1.7.1"}

    monkeypatch.setattr(_flavours, "run_worker", run_worker)
    assert Device(TENSORRT).problem() is None
    assert flavour_problem("tensorrt", 0) == "TensorRT crashed with signal 6"
    assert later == ["tensorrt_rtx"], "the flavour after the crash is tried in a process of its own"


@pytest.mark.parametrize(
    ("lines", "end", "problem"),
    [
        ([], "os.abort()", "the NVIDIA driver could not be queried: TensorRT crashed with signal 6"),
        ([], "", "the NVIDIA driver could not be queried: no answer"),
        ([{"problem": "no NVIDIA driver is installed"}], "", "no NVIDIA driver is installed"),
        ([{"gpus": "many"}], "", "the NVIDIA driver could not be queried"),
        ([DRIVER, {"flavour": "tensorrt", "problem": "CUDA error 35"}], "", "CUDA error 35"),
    ],
)
def test_what_the_device_says(
    monkeypatch: pytest.MonkeyPatch, lines: list[object], end: str, problem: str, started: list[Any]
) -> None:
    install_empty(monkeypatch, "tensorrt")
    uninstall(monkeypatch, "tensorrt_rtx")
    answers(monkeypatch, *lines, end=end)
    assert Device(TENSORRT).problem() == problem
    assert len(started) == 1


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    install_empty(monkeypatch, "tensorrt")
    uninstall(monkeypatch, "tensorrt_rtx")
    monkeypatch.setattr(_look, "_SECONDS", 1)
    answers(monkeypatch, DRIVER, end="import time\ntime.sleep(60)")
    assert Device(TENSORRT).problem() == "it did not respond within 1 s"


def test_the_real_child_reports_the_driver_and_the_errors_of_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is a program that prints one; the real TensorRT for RTX then finds none."""
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    if probe_driver().problem is None:
        pytest.skip("this machine has a driver")
    assert _look.look(0, ["tensorrt_rtx"]) == (probe_driver(), {})
    printed = f"print({json.dumps(DRIVER)!r})"
    program = f"from bcos_sdk.backends.tensorrt import _look\n_look.DRIVER_PROGRAM = {printed!r}\n_look.main()\n"
    monkeypatch.setattr(_look, "_PROGRAM", program)
    driver, tried = _look.look(0, ["no_such_flavour", "tensorrt_rtx"])
    assert driver == Driver.model_validate(DRIVER)
    assert "No module named" in tried["no_such_flavour"]["problem"]
    assert "CUDA error" in tried["tensorrt_rtx"]["problem"]
