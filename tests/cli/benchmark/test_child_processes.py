"""Measurements in new processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.bundles import SIZE, small_bundle

from bcos_sdk.cli.benchmark import _child_processes
from bcos_sdk.cli.benchmark._folder import measure_folder
from bcos_sdk.cli.benchmark._measurements import describe_machine
from bcos_sdk.cli.benchmark._subject import sample_images
from bcos_sdk.errors import InferenceError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")


@pytest.mark.needs_torch
def test_the_import_is_measured_in_a_process_without_torch() -> None:
    assert "torch" in sys.modules, "this process has imported torch"
    imported = _child_processes.measure_import()
    assert not imported.imports_torch
    assert 0 < imported.seconds < 60


def test_the_cold_start_is_measured() -> None:
    assert 0 < _child_processes.cold_start_seconds(str(small_bundle().path), "cpu", 1) < 60


def test_the_peak_memory_of_the_child_does_not_include_this_process() -> None:
    mine = bytearray(600_000_000)
    mine[::4096] = b"1" * len(mine[::4096])
    peak = _child_processes.our_peak_memory(str(small_bundle().path), "cpu", 1, 2)
    assert 20 < peak < len(mine) / 1e6


def test_errors_of_the_child_process_are_raised_here() -> None:
    with pytest.raises(InferenceError, match="not a usable bundle"):
        _child_processes.our_peak_memory("/nowhere", "cpu", 1, 2)
    with pytest.raises(InferenceError, match="no device 'abacus'"):
        _child_processes.cold_start_seconds(str(small_bundle().path), "abacus", 1)


def test_a_folder_is_run_through_the_command(tmp_path: Path) -> None:
    calls: list[int] = []
    record = measure_folder(
        small_bundle().path,
        "cpu",
        threads=1,
        batch=2,
        images=3,
        picture_size=(60, 80),
        cold_start_seconds=0.1,
        bare=lambda: calls.append(1),
        workspace=tmp_path,
    )
    assert (record.images, record.batch) == (3, 2)
    assert len((tmp_path / "results-cpu" / "results.jsonl").read_text().splitlines()) == 3
    assert len(calls) == 2 * (1 + 5), "before and after, each with one warm-up run"


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="failed with exit code"):
        measure_folder(
            tmp_path / "nothing",
            "cpu",
            threads=1,
            batch=2,
            images=1,
            picture_size=SIZE,
            cold_start_seconds=0.1,
            bare=lambda: sample_images(1, SIZE),
            workspace=tmp_path,
        )


@pytest.mark.needs_torch
def test_the_machine_is_described_without_host_name_and_home_folder() -> None:
    import platform

    described = describe_machine()
    assert described.cores >= 1
    assert "torch" in described.packages
    assert platform.node() not in described.model_dump_json()
    assert str(Path.home()) not in described.model_dump_json()
