"""The kernels that TensorRT for RTX compiles are kept on disk, and only those that this user has written are loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import copy_of, encoded_batch, small_bundle
from support.fake_gpu import FakeKernels, FakeTensorRT
from support.gpu_machine import GpuMachine, forget, uninstall

from bcos_sdk.backends import open_backend
from bcos_sdk.bundle import Bundle, open_bundle


@pytest.fixture
def rtx(machine: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> FakeTensorRT:
    """A machine with TensorRT for RTX only."""
    uninstall(monkeypatch, "tensorrt")
    machine.trt = FakeTensorRT(machine.cuda, "tensorrt_rtx")
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", machine.trt)
    forget()
    return machine.trt


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def run(bundle: Bundle, device: str = "tensorrt") -> None:
    """What one process does: open the bundle, run two shapes, close it."""
    backend = open_backend(bundle, device)
    for count in (1, 3):
        backend.explain(encoded_batch(count), np.full((count, 1), -1), weights=False)
    backend.close()


def kernels(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "kernels").glob("*.cache"))


def test_the_next_process_compiles_nothing(rtx: FakeTensorRT, bundle: Bundle, tmp_path: Path) -> None:
    run(bundle)
    compiled = len(rtx.compiled)
    assert compiled == 3, "predict for one image, explain for one and for three"
    assert len(kernels(tmp_path)) == 2, "one per engine"
    run(bundle)
    assert len(rtx.compiled) == compiled
    run(bundle, "tensorrt:1")
    assert len(rtx.compiled) == 2 * compiled, "another GPU has other kernels"


def test_kernels_are_serialised_once_on_closing(
    rtx: FakeTensorRT, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes time, and no call may wait for it. A client that has run no shapes serialises nothing."""
    done: list[int] = []
    serialize = FakeKernels.serialize

    def counted(self: FakeKernels) -> bytes:
        done.append(1)
        return serialize(self)

    monkeypatch.setattr(FakeKernels, "serialize", counted)
    backend = open_backend(bundle, "tensorrt")
    for count in (1, 2, 3, 1, 2):
        backend.explain(encoded_batch(count), np.full((count, 1), -1), weights=False)
    assert (done, kernels(tmp_path)) == ([], [])
    backend.close()
    backend.close()
    assert len(done) == len(kernels(tmp_path)) == 2, "one per engine"
    written = [path.stat().st_mtime_ns for path in kernels(tmp_path)]
    run(bundle)
    assert [path.stat().st_mtime_ns for path in kernels(tmp_path)] == written, "nothing new was compiled"


def test_kernels_that_cannot_be_serialised_do_not_disturb_closing(
    rtx: FakeTensorRT, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_self: FakeKernels) -> bytes:
        raise RuntimeError("no kernels")

    monkeypatch.setattr(FakeKernels, "serialize", broken)
    run(bundle)
    assert "compiled kernels are not kept for the next start: no kernels" in caplog.text
    assert rtx.cuda.memory == {"device": {}, "pinned": {}}


def test_a_new_driver_compiles_again(rtx: FakeTensorRT, machine: GpuMachine, bundle: Bundle) -> None:
    run(bundle)
    machine.update(version="590.10")
    run(bundle)
    assert len(rtx.compiled) == 6


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"pixels", b"pixelz"))


def link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def forge(path: Path) -> None:
    record = path.with_suffix(".json")
    record.write_text(record.read_text("utf-8").replace('"seal": "', '"seal": "0'), "utf-8")


SPOILT: dict[str, Callable[[Path], Any]] = {
    "changed": spoil,
    "link": link,
    "hard link": lambda path: os.link(path, path.with_suffix(".elsewhere")),
    "seal of another user": forge,
    "no record": lambda path: path.with_suffix(".json").unlink(),
    "damaged record": lambda path: path.with_suffix(".json").write_bytes(b"\xff{"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_kernels_that_this_user_did_not_write_are_not_loaded(
    rtx: FakeTensorRT, bundle: Bundle, tmp_path: Path, case: str
) -> None:
    run(bundle)
    for path in kernels(tmp_path):
        SPOILT[case](path)
    run(bundle)
    assert len(rtx.compiled) == 6
    run(bundle)
    assert len(rtx.compiled) == 6, "new kernels have replaced them"


def test_a_folder_that_cannot_be_written_costs_only_time(
    rtx: FakeTensorRT, bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / "kernels").write_text("in the way")
    run(bundle)
    assert "compiled kernels are not kept for the next start" in caplog.text


def test_the_calls_exist_in_the_real_bindings() -> None:
    """Enums and members of TensorRT for RTX that the stand-in imitates."""
    trt = pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]'")
    assert {"EAGER", "LAZY"} <= trt.DynamicShapesKernelSpecializationStrategy.__members__.keys()
    assert "IRuntimeConfig" in trt.ICudaEngine.create_execution_context.__doc__
    assert trt.ICudaEngine.create_runtime_config.__doc__.count("IRuntimeConfig") > 0
    for member in ("set_execution_context_allocation_strategy", "create_runtime_cache", "set_runtime_cache"):
        assert callable(getattr(trt.IRuntimeConfig, member))
    assert trt.IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy.fset is not None
    assert "bool" in trt.IRuntimeCache.deserialize.__doc__
    assert "IHostMemory" in trt.IRuntimeCache.serialize.__doc__
    assert "profile_index" in trt.ICudaEngine.get_device_memory_size_for_profile_v2.__doc__
    assert "-> bool" in trt.IExecutionContext.set_tensor_address.__doc__
