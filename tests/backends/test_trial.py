"""A device that crashes with a bundle ends only the child process that tries it; then `auto` takes another one."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.bundles import small_bundle

from bcos_sdk.backends import Device, _open, _trial, open_backend
from bcos_sdk.backends._runtime import OpenOptions
from bcos_sdk.backends._trial import judge_exit
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.openvino import OPENVINO
from bcos_sdk.bundle import BUILTIN_SHA256, find_bundle
from bcos_sdk.contract import InputSpec

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")


@pytest.fixture(autouse=True)
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_trials: None) -> list[list[str]]:
    """Let `auto` try devices. The list has the commands of the child processes."""
    monkeypatch.setattr(_open, "crash_of", _trial.crash_of)
    monkeypatch.setenv("BCOS_SDK_CACHE", str(tmp_path / "cache"))
    started: list[list[str]] = []
    run = subprocess.run

    def noted(command: list[str], **options: Any) -> Any:
        if any("_trial_process" in part for part in command):
            started.append(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    return started


def openvino_that_does(statement: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package before OpenVINO that does this when a child process imports it."""
    package = folder / "openvino"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"import os, signal, sys, time\n{statement}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_crash_ends_only_the_process_that_tries_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    openvino_that_does("os.kill(os.getpid(), signal.SIGSEGV)", tmp_path / "packages", monkeypatch)
    caplog.set_level("INFO", "bcos_sdk")
    for _ in range(2):
        backend = open_backend(small_bundle(), "auto", threads=2)
        assert backend.device == Device(CPU)
        backend.close()
    assert len(trials) == 1, "the verdict is kept"
    assert "openvino crashes with this bundle: a process that tried it ended with signal 11" in caplog.text


def test_a_device_that_works_is_tried_once(trials: list[list[str]]) -> None:
    for _ in range(2):
        backend = open_backend(small_bundle(), "auto", threads=2)
        assert backend.device == Device(OPENVINO)
        backend.close()
    assert len(trials) == 1
    (verdict,) = (Path(os.environ["BCOS_SDK_CACHE"]) / "trials").iterdir()
    assert json.loads(verdict.read_text())["crash"] is None
    open_backend(small_bundle(), "auto", threads=1).close()
    assert len(trials) == 2, "another number of threads compiles other kernels"


def test_a_damaged_verdict_is_replaced(trials: list[list[str]]) -> None:
    open_backend(small_bundle(), "auto", threads=2).close()
    (verdict,) = (Path(os.environ["BCOS_SDK_CACHE"]) / "trials").iterdir()
    verdict.write_text("{")
    open_backend(small_bundle(), "auto", threads=2).close()
    assert len(trials) == 2
    assert json.loads(verdict.read_text())["crash"] is None


def test_an_error_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is found again, and reported, by the process that opens the bundle."""
    openvino_that_does("raise ImportError('too old')", tmp_path / "packages", monkeypatch)
    assert _trial.crash_of(small_bundle(), Device(OPENVINO), OpenOptions(threads=2)) is None
    assert "crash" not in caplog.text


@pytest.mark.parametrize("device", ["openvino", "cpu"])
def test_a_named_device_is_opened_at_once(device: str, trials: list[list[str]]) -> None:
    open_backend(small_bundle(), device).close()
    assert trials == []


@pytest.mark.parametrize("name", BUILTIN_SHA256)
def test_built_in_models_are_not_tried(name: str, trials: list[list[str]]) -> None:
    open_backend(find_bundle(name), "auto").close()
    assert trials == []


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (0, b"tried\n", (True, None)),
        (0, b"", (False, None)),
        (-9, b"", (False, None)),
        (-6, b"", (True, "signal 6")),
        (3221225477, b"", (True, "exit code 3221225477")),
    ],
)
def test_what_the_end_of_a_trial_says(code: int, output: bytes, expected: tuple[bool, str | None]) -> None:
    is_known, crash = judge_exit(Device(OPENVINO), code, output)
    assert is_known == expected[0]
    assert (crash is None) == (expected[1] is None)
    assert crash is None or crash.endswith(f"ended with {expected[1]}")


@pytest.mark.parametrize(("threads", "sizes"), [(1, (1,)), (2, (1, 2)), (4, (1, 2, 4)), (16, (1, 2, 4, 8))])
def test_every_compiled_size_is_tried(threads: int, sizes: tuple[int, ...]) -> None:
    manifest = small_bundle().manifest
    photographs = manifest.model_copy(update={"input": InputSpec.for_photographs((224, 224)), "max_batch": 8})
    assert OPENVINO.sizes(threads, photographs) == sizes
    pairs = photographs.model_copy(update={"max_batch": 2})
    assert OPENVINO.sizes(threads, pairs) == tuple(size for size in sizes if size <= 2)
