"""The choice of the TensorRT flavour, the errors if none can build, and the child process of TensorRT."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bundles import small_bundle
from support.gpu_machine import install_empty, uninstall

from bcos_sdk.backends import Device, Driver, Gpu, check_device, probe_driver
from bcos_sdk.backends.tensorrt import (
    TENSORRT,
    build_engines,
    choose_flavour,
    flavour_problem,
    flavour_version,
    run_worker,
)
from bcos_sdk.errors import DeviceUnavailableError, EngineError, InputError, MissingExtraError

UseDriver = Callable[[Driver], None]
L4 = Driver(gpus=(Gpu(name="L4", capability="8.9"),))


@pytest.mark.parametrize("capability", ["9.9", "89", "sm89", ""])
def test_unknown_capabilities_are_refused(capability: str) -> None:
    with pytest.raises(InputError, match="cannot be built for compute capability"):
        build_engines(small_bundle(), compute_capabilities=[capability])


def test_a_capability_without_float32_is_refused_before_any_build() -> None:
    with pytest.raises(InputError, match=r"7\.5 cannot multiply in float32") as caught:
        build_engines(small_bundle(), compute_capabilities=["8.9", "7.5"])
    assert "--precision fp16" in str(caught.value)


def test_without_a_gpu_the_hint_names_both_ways_to_build(use_driver: UseDriver) -> None:
    use_driver(Driver(problem="no NVIDIA driver is installed"))
    with pytest.raises(DeviceUnavailableError, match="no NVIDIA driver is installed") as caught:
        build_engines(small_bundle())
    assert "--compute-capability" in str(caught.value)
    assert "machine with the GPU" in str(caught.value)


def test_classic_tensorrt_builds_for_the_gpu_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, use_driver: UseDriver
) -> None:
    use_driver(L4)
    install_empty(monkeypatch, "tensorrt", "tensorrt_rtx")
    assert choose_flavour([], "fp32") == "tensorrt"
    assert choose_flavour(["8.9"], "fp32") == "tensorrt_rtx"


def test_a_flavour_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, use_driver: UseDriver) -> None:
    use_driver(L4)
    uninstall(monkeypatch, "tensorrt", "tensorrt_rtx")
    with pytest.raises(MissingExtraError, match="needs tensorrt_rtx"):
        choose_flavour(["8.9"], "fp32")
    with pytest.raises(MissingExtraError, match="needs tensorrt,"):
        choose_flavour([], "fp32")


def test_the_version_comes_from_the_library() -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    assert flavour_version("tensorrt_rtx") == trt.__version__


@pytest.mark.skipif(not probe_driver().problem, reason="there is a driver")
def test_without_a_driver_tensorrt_fails_with_a_reason(use_driver: UseDriver) -> None:
    """The real TensorRT runs here, in its child process."""
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    assert check_device(Device(TENSORRT)) == "no NVIDIA driver is installed"
    use_driver(L4)
    problem = flavour_problem("tensorrt_rtx", 0)
    assert problem is not None
    assert "CUDA error" in problem


def test_a_gpu_that_tensorrt_for_rtx_does_not_support_is_named(use_driver: UseDriver) -> None:
    use_driver(Driver(gpus=(Gpu(name="H100", capability="9.0"),)))
    assert "compute capability 9.0" in str(flavour_problem("tensorrt_rtx", 0))


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorrt_rtx.py").write_text("raise SystemExit('code of the current folder was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    pytest.importorskip("tensorrt_rtx_bindings", reason="pip install 'bcos-sdk[trt-rtx]'")
    assert run_worker({"task": "version", "flavour": "tensorrt_rtx"})["version"]


def worker(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda _command, **options: start([sys.executable, "-c", program], **options)
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "TensorRT crashed with signal 11"),
        (
            "import os, sys; print('[E] bad', file=sys.stderr, flush=True); os.abort()",
            r"signal 6; its last message: \[E\] bad",
        ),
        ("import sys; sys.exit('no such operator')", "no such operator"),
        ("import sys; sys.exit(3)", "TensorRT exited with code 3"),
        ("pass", "gave no reply"),
        ("import os; os.close(0); import sys; sys.exit('stdin is closed')", "stdin is closed"),
        ("import sys; sys.stderr.write('a\\nb\\nc\\n' * 99999); sys.exit(1)", "a; b; c"),
    ],
)
def test_the_error_says_why_the_worker_failed(monkeypatch: pytest.MonkeyPatch, program: str, reason: str) -> None:
    worker(monkeypatch, program)
    with pytest.raises(EngineError, match=reason):
        run_worker({"task": "version"})


def test_a_worker_may_print_other_lines_before_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, "print('loading'); print('{\"version\": \"1\"}')")
    assert run_worker({"task": "version"}) == {"version": "1"}


def test_an_interrupted_caller_kills_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = subprocess.Popen

    def remember(_command: Any, **options: Any) -> Any:
        started.append(start([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        started[0].stdout.read = interrupt
        return started[0]

    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", remember)
    with pytest.raises(KeyboardInterrupt):
        run_worker({"task": "version"})
    assert started[0].poll() is not None
    assert os.name == "nt" or started[0].returncode == -9
