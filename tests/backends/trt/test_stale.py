"""An engine is used while its key matches. Otherwise it is built again, and the log says why."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bundles import copy_of, edit_manifest, small_bundle
from support.gpu_machine import GPUS, GpuMachine

from bcos_sdk.backends import Gpu
from bcos_sdk.backends.tensorrt import Engine, EngineKey, find_engine, key_for_gpu, obtain_engine
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import EngineError


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def key(bundle: Bundle, gpu: int = 0, *, tf32: bool = False, flavour: Any = "tensorrt") -> EngineKey:
    return key_for_gpu(bundle, bundle.explain_graph, flavour, gpu, tf32=tf32)


def obtain(bundle: Bundle, gpu: int = 0, *, tf32: bool = False) -> Engine:
    return obtain_engine(bundle, bundle.explain_graph, [key(bundle, gpu, tf32=tf32)], gpu)


def engines(tmp_path: Path, suffix: str = ".plan") -> list[Path]:
    return sorted((tmp_path / "cache" / "engines").glob(f"*{suffix}"))


def test_an_engine_that_fits_is_used_again(machine: GpuMachine, bundle: Bundle, tmp_path: Path) -> None:
    first = obtain(bundle)
    assert obtain(bundle) == first
    assert machine.builds == ["explain.onnx"]
    assert first.record.key.gpu == "NVIDIA L4"
    assert (first.record.key.cuda, first.record.key.driver) == ("13.1", "580.65")
    assert len(engines(tmp_path)) == len(engines(tmp_path, ".json")) == 1


CHANGES: dict[str, tuple[Callable[[GpuMachine], None], str]] = {
    "TensorRT": (lambda m: m.update(tensorrt="11.4.0"), "its TensorRT version is 10.16.1, not 11.4.0"),
    "CUDA": (lambda m: m.update(cuda="13.2"), "its CUDA version is 13.1, not 13.2"),
    "GPU": (
        lambda m: m.update(gpus=(Gpu(name="NVIDIA L40S", capability="8.9"), GPUS[1])),
        "its GPU is NVIDIA L4, not NVIDIA L40S",
    ),
    "capability": (
        lambda m: m.update(gpus=(Gpu(name="NVIDIA L4", capability="9.0"), GPUS[1])),
        "its compute capability is 8.9, not 9.0",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_machine_makes_an_engine_stale(
    machine: GpuMachine, bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    apply, reason = CHANGES[change]
    obtain(bundle)
    apply(machine)
    with caplog.at_level(logging.WARNING, "bcos_sdk"):
        caplog.clear()
        obtain(bundle)
    assert len(machine.builds) == 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert reason in line
    assert "\n" not in line
    assert len(engines(tmp_path)) == 2, "two environments that share a cache must not replace each other's engines"
    obtain(bundle)
    assert len(machine.builds) == 2


def test_a_new_driver_makes_an_engine_stale(
    machine: GpuMachine, bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    obtain(bundle)
    machine.update(version="590.10")
    obtain(bundle)
    assert "its driver version is 580.65, not 590.10" in caplog.text


def test_a_change_of_bundle_or_options_makes_an_engine_stale(
    machine: GpuMachine, bundle: Bundle, tmp_path: Path
) -> None:
    was = key(bundle)
    changed = copy_of(bundle, tmp_path / "changed")
    edit_manifest(changed, lambda document: document.update(max_batch=2))
    smaller = open_bundle(changed)
    assert [reason[:13] for reason in was.mismatches(key(smaller))] == ["its graph is ", "its shapes is"]
    assert was.mismatches(key(bundle, tf32=True)) == ["its use of TF32 is False, not True"]
    other = was.model_copy(update={"weights_sha256": "0" * 64, "graph_sha256": "1" * 64})
    assert [reason.split()[1] for reason in was.mismatches(other)] == ["graph", "weights"]
    half = was.model_copy(update={"precision": "fp16"})
    assert was.mismatches(half) == ["its precision is fp32, not fp16"]
    assert len({one.stem("explain") for one in (was, key(smaller), other, half, key(bundle, tf32=True))}) == 5
    obtain(bundle)
    obtain(smaller)
    obtain(bundle, tf32=True)
    assert len(machine.builds) == 3


def test_a_failed_rebuild_names_the_mismatch(machine: GpuMachine, bundle: Bundle) -> None:
    obtain(bundle)
    machine.update(cuda="13.2")
    machine.fails = "out of memory"
    with pytest.raises(
        EngineError, match=r"out of memory; no existing engine fits: .*its CUDA version is 13\.1, not 13\.2"
    ):
        obtain(bundle)


def spoil_plan(plan: Path) -> None:
    contents = bytearray(plan.read_bytes())
    contents[len(contents) // 2] ^= 1
    plan.write_bytes(contents)


def link_plan(plan: Path) -> None:
    elsewhere = plan.with_name("elsewhere")
    plan.rename(elsewhere)
    plan.symlink_to(elsewhere)


SPOILT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "flipped bit": (spoil_plan, "its hash differs from the record"),
    "longer": (
        lambda plan: plan.write_bytes(plan.read_bytes() + b"x"),
        "has more than",
    ),
    "link": (link_plan, "it is a symbolic link"),
    "hard link": (lambda plan: os.link(plan, plan.with_name("elsewhere")), "it is a hard link"),
    "missing": (lambda plan: plan.unlink(), "cannot be read"),
    "no record": (lambda plan: plan.with_suffix(".json").write_text("{}"), "its record has another format"),
    "not JSON": (lambda plan: plan.with_suffix(".json").write_bytes(b"\xff"), "its record has another format"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_damaged_engine_is_built_again(
    machine: GpuMachine, bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    spoil, reason = SPOILT[case]
    obtain(bundle)
    (plan,) = engines(tmp_path)
    spoil(plan)
    caplog.clear()
    obtain(bundle)
    assert reason in caplog.text
    assert len(machine.builds) == 2
    assert plan.is_file()
    assert not plan.is_symlink()


def test_an_engine_built_ahead_of_time_fits_every_gpu_of_its_capabilities(machine: GpuMachine, bundle: Bundle) -> None:
    ahead = key(bundle, flavour="tensorrt_rtx").model_copy(update={"compute_capabilities": ("8.6", "8.9")})
    assert ahead.gpu is ahead.driver is ahead.cuda is None
    assert ahead.mismatches(key(bundle, 0, flavour="tensorrt_rtx")) == []
    assert ahead.mismatches(key(bundle, 1, flavour="tensorrt_rtx")) == ["its compute capability is 8.6, 8.9, not 12.0"]


def test_an_existing_engine_of_the_second_flavour_is_used_before_a_build(machine: GpuMachine, bundle: Bundle) -> None:
    second = key(bundle, flavour="tensorrt_rtx")
    obtain_engine(bundle, bundle.explain_graph, [second], 0)
    found = obtain_engine(bundle, bundle.explain_graph, [key(bundle), second], 0)
    assert found.record.key.flavour == "tensorrt_rtx"
    assert len(machine.builds) == 1


def test_engines_of_other_models_are_not_mentioned(machine: GpuMachine, bundle: Bundle, tmp_path: Path) -> None:
    obtain(bundle)
    other = key(bundle).model_copy(update={"graph_sha256": "0" * 64, "weights_sha256": "1" * 64})
    assert find_engine([tmp_path / "cache" / "engines"], "explain", other) == "no engine was built yet"


def test_a_linked_folder_is_not_searched(machine: GpuMachine, bundle: Bundle, tmp_path: Path) -> None:
    obtain(bundle)
    (tmp_path / "link").symlink_to(tmp_path / "cache" / "engines")
    assert find_engine([tmp_path / "link"], "explain", key(bundle)) == "no engine was built yet"


def test_the_engine_with_the_fewest_mismatches_is_named(machine: GpuMachine, bundle: Bundle, tmp_path: Path) -> None:
    obtain(bundle)
    obtain(bundle, 1)
    reason = find_engine([tmp_path / "cache" / "engines"], "explain", key(bundle).model_copy(update={"cuda": "1"}))
    assert isinstance(reason, str)
    assert reason.endswith("its CUDA version is 13.1, not 1")
    assert find_engine([tmp_path / "nowhere"], "explain", key(bundle)) == "no engine was built yet"
