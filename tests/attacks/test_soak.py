"""Thousands of calls with good and hostile images leave nothing behind: memory, descriptors, threads, processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacks import HELD, attack
from support.bundles import small_bundle
from support.soak import PHASES, Soak, Usage, can_measure

pytestmark = pytest.mark.skipif(not can_measure(), reason="needs Linux: it reads /proc")
RUNTIMES = ("cpu", "openvino")
MB = 1 << 20
LATER_THREADS = 12
"""OpenVINO starts threads for a size of batch when it first runs: at most two for each of three sizes of two graphs."""


def soak(device: str, folder: Path, *, calls: int, cycles: int) -> Soak:
    """Run `support.soak` in an empty folder, so that it imports the same bcos_sdk as this process."""
    command = [sys.executable, "-m", "support.soak", str(small_bundle().path), device, str(calls), str(cycles)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    measured = {name: [Usage(**one) for one in figures[name]] for name in ("calls", "cycles")}
    return Soak(**measured, outcomes=figures["outcomes"])


def check_flat(usage: list[Usage], growth: int) -> None:
    """At the end the process holds no more than after three tenths of the run.

    Memory varies by a few MB from one measurement to the next, so the least of the last three counts.
    """
    assert len(usage) == PHASES
    memory = [one.memory for one in usage]
    assert min(memory[-3:]) <= max(memory[1:4]) + growth, [one // MB for one in memory]
    early, late = usage[2], usage[-1]
    assert late.descriptors <= early.descriptors, usage
    assert late.threads <= early.threads + LATER_THREADS, usage
    assert late.children <= early.children, usage


def check_outcomes(outcomes: dict[str, int], calls: int) -> None:
    """Each way to end was taken often."""
    expected = {"result", "deadline_exceeded", "image_too_large", "image_unreadable", "input_invalid", "unknown_target"}
    assert set(outcomes) == expected
    assert outcomes["result"] > calls // 2
    assert min(outcomes.values()) > calls // 200


@attack("images", "300 calls from four threads with good and hostile images, and 10 clients", before=HELD)
@pytest.mark.parametrize("device", RUNTIMES)
def test_calls_with_hostile_images_leave_nothing_behind(device: str, tmp_path: Path) -> None:
    figures = soak(device, tmp_path, calls=300, cycles=10)
    check_outcomes(figures.outcomes, 300)
    check_flat(figures.calls, 32 * MB)
    check_flat(figures.cycles, 32 * MB)


@pytest.mark.soak
@attack("images", "20,000 calls from four threads with good and hostile images, and 200 clients", before=HELD)
@pytest.mark.parametrize("device", RUNTIMES)
def test_memory_is_constant(device: str, tmp_path: Path, report_soak: Callable[[str, Soak], None]) -> None:
    figures = soak(device, tmp_path, calls=20_000, cycles=200)
    report_soak(device, figures)
    check_outcomes(figures.outcomes, 20_000)
    check_flat(figures.calls, 4 * MB)
    check_flat(figures.cycles, 4 * MB)
