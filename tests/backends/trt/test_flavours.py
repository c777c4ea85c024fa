"""Which TensorRT builds, and what is said where none can; all of it asked in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bcos_sdk.backends.tensorrt._process import run_worker
from support.bundles import small_bundle

from bcos_sdk.backends import Device, check_device
from bcos_sdk.backends._driver import Driver, Gpu
from bcos_sdk.backends.tensorrt import _flavours, _process, build_engines, choose_flavour
from bcos_sdk.errors import DeviceError, EngineError, InputError, MissingExtraError


@pytest.mark.parametrize("capability", ["9.9", "89", "sm89", ""])
def test_unknown_capabilities(capability: str) -> None:
    with pytest.raises(InputError, match="no compute capability"):
        build_engines(small_bundle(), compute_capabilities=[capability])


def test_a_capability_without_full_precision_is_named_before_any_work() -> None:
    with pytest.raises(InputError, match=r"7\.5 cannot multiply in full precision") as caught:
        build_engines(small_bundle(), compute_capabilities=["8.9", "7.5"])
    assert "--precision fp16" in str(caught.value)


def test_without_a_gpu_both_ways_on_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flavours, "probe_driver", lambda: Driver(problem="no NVIDIA driver is installed"))
    with pytest.raises(DeviceError, match="no NVIDIA driver is installed") as caught:
        build_engines(small_bundle())
    assert "--compute-capability" in str(caught.value)
    assert "machine with the GPU" in str(caught.value)


def test_with_a_gpu_the_classic_flavour_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flavours, "probe_driver", lambda: Driver(gpus=(Gpu(name="L4", capability="8.9"),)))
    asked: list[str] = []
    monkeypatch.setattr(_flavours, "require", lambda *modules, purpose: asked.extend(modules))
    assert choose_flavour([], "fp32") == "tensorrt"
    assert choose_flavour(["8.9"], "fp32") == "tensorrt_rtx"
    assert asked == ["tensorrt", "tensorrt_rtx"]


def test_a_flavour_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise MissingExtraError("Building engines needs tensorrt_rtx")

    monkeypatch.setattr(_flavours, "require", missing)
    with pytest.raises(MissingExtraError, match="needs tensorrt_rtx"):
        choose_flavour(["8.9"], "fp32")


def test_the_version_is_what_the_library_says() -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    assert _flavours.version_of("tensorrt_rtx") == trt.__version__


@pytest.mark.skipif(
    not pytest.importorskip("bcos_sdk.backends._driver").probe_driver().problem, reason="there is a driver"
)
def test_without_a_driver_trying_it_is_an_answer_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT itself is touched, in the process made for it: whatever happens there, this one goes on."""
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    _flavours.flavour_problem.cache_clear()
    monkeypatch.setattr(_flavours, "probe_driver", lambda: Driver(gpus=(Gpu(name="L4", capability="8.9"),)))
    problem = _flavours.flavour_problem("tensorrt_rtx", 0)
    assert problem is not None
    assert "CUDA error" in problem
    assert check_device(Device("tensorrt")) == "no NVIDIA driver is installed"


def test_a_gpu_that_tensorrt_for_rtx_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flavours, "probe_driver", lambda: Driver(gpus=(Gpu(name="H100", capability="9.0"),)))
    _flavours.flavour_problem.cache_clear()
    assert "compute capability 9.0" in str(_flavours.flavour_problem("tensorrt_rtx", 0))
    _flavours.flavour_problem.cache_clear()


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
            r"signal 6 after saying: \[E\] bad",
        ),
        ("import sys; sys.exit('no such operator')", "no such operator"),
        ("import sys; sys.exit(3)", "TensorRT ended with code 3"),
        ("pass", "gave no answer"),
        ("import os; os.close(0); import sys; sys.exit('closed its ears')", "closed its ears"),
        ("import sys; sys.stderr.write('a\\nb\\nc\\n' * 99999); sys.exit(1)", "a; b; c"),
    ],
)
def test_a_worker_that_ends_badly_says_why(monkeypatch: pytest.MonkeyPatch, program: str, reason: str) -> None:
    worker(monkeypatch, program)
    with pytest.raises(EngineError, match=reason):
        run_worker({"task": "version"})


def test_a_worker_may_say_other_things_before_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, "print('loading'); print('{\"version\": \"1\"}')")
    assert run_worker({"task": "version"}) == {"version": "1"}


def test_an_interrupted_caller_ends_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = subprocess.Popen

    def remember(_command: Any, **options: Any) -> Any:
        started.append(start([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        return started[0]

    def interrupt(*_: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", remember)
    monkeypatch.setattr(_process, "_converse", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_worker({"task": "version"})
    assert started[0].poll() is not None
    assert os.name == "nt" or started[0].returncode == -9
