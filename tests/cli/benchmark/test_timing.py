"""Interleaved timing: the order of the rounds, and the medians and minima."""

from __future__ import annotations

import numpy as np
import pytest

from bcos_sdk.cli.benchmark._timing import Case, round_order, time_cases


class FakeClock:
    """A clock that advances only while a case runs, by the next duration given for that case."""

    def __init__(self, durations: dict[str, list[float]]) -> None:
        self.now = 0.0
        self.durations = durations
        self.ran: list[str] = []
        self.pauses: list[float] = []

    def run(self, name: str) -> None:
        self.now += self.durations[name][self.ran.count(name)]
        self.ran.append(name)

    def case(self, name: str, batch: int) -> Case:
        return Case("ours", "explain", name, batch, lambda: self.run(name))


def test_every_case_runs_once_per_round_after_a_pause() -> None:
    fake = FakeClock({name: [1.0] * 4 for name in "abc"})
    time_cases([fake.case(name, 1) for name in "abc"], 3, clock=lambda: fake.now, pause=fake.pauses.append)
    assert all(sorted(fake.ran[start : start + 3]) == ["a", "b", "c"] for start in range(0, 12, 3))
    assert len(fake.pauses) == len(fake.ran), "thread pools become idle before the next case runs"


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_order_is_a_permutation_and_the_same_in_every_run(count: int) -> None:
    for number in range(7):
        assert sorted(round_order(count, number)) == list(range(count))
        assert round_order(count, number) == round_order(count, number)


def test_no_case_always_follows_the_same_case() -> None:
    rounds = [round_order(12, number) for number in range(1, 11)]
    for one in range(12):
        before = [order[order.index(one) - 1] for order in rounds if order[0] != one]
        assert len(set(before)) >= 4


def test_medians_and_minima_are_per_image_and_without_the_warm_up() -> None:
    durations = {"a": [99.0, 0.4, 0.1, 0.7, 0.2], "b": [0.001, 8.0, 2.0, 4.0, 6.0]}
    fake = FakeClock(durations)
    first, second = time_cases(
        [fake.case("a", 1), fake.case("b", 8)], 4, clock=lambda: fake.now, pause=lambda _seconds: None
    )
    assert (first.device, first.batch, second.device, second.batch) == ("a", 1, "b", 8)
    assert first.median_ms == pytest.approx(1e3 * float(np.median([0.4, 0.1, 0.7, 0.2])))
    assert first.least_ms == pytest.approx(100.0)
    assert second.median_ms == pytest.approx(5000.0 / 8)
    assert second.least_ms == pytest.approx(2000.0 / 8)
    assert second.images_per_second == pytest.approx(8 / 5.0)
