"""Requests to a server, good and hostile ones: no answer is wrong, every failure has a type, nothing is left behind."""

from __future__ import annotations

import pytest
import support.needs_serve  # noqa: F401 - before what needs the extra
from support.serve_soak import HOSTILE, PHASES, ServeSoak, run
from support.soak import can_measure

pytestmark = pytest.mark.skipif(not can_measure(), reason="needs Linux: it reads /proc")
MB = 1 << 20


def check(soak: ServeSoak, requests: int) -> None:
    hostile = sum(count for kind, count in soak.answers.items() if kind.startswith("hostile"))
    good = sum(count for kind, count in soak.answers.items() if kind.endswith(" 200"))
    assert sum(soak.answers.values()) == requests
    assert HOSTILE / 2 < hostile / requests < HOSTILE * 2
    assert good + hostile == requests, soak.answers  # 16 callers never fill the queue of 64
    assert len(soak.usage) == PHASES


def test_some_requests_with_hostile_ones_among_them() -> None:
    check(run(160), 160)


@pytest.mark.soak
def test_twenty_thousand_requests_leave_nothing_behind() -> None:
    soak = run(20_000)
    check(soak, 20_000)
    memory = [one.memory for one in soak.usage]
    assert min(memory[-3:]) <= max(memory[1:4]) + 8 * MB, [one // MB for one in memory]
    early, late = soak.usage[2], soak.usage[-1]
    assert late.descriptors <= early.descriptors, soak.usage
    assert late.children <= early.children, soak.usage
