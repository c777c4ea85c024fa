"""The race: everyone runs as often, in turns, and the figures are what the clock said."""

from __future__ import annotations

import numpy as np
import pytest

from bcos_sdk.cli.benchmark._race import Contender, race, turns


class Track:
    """A clock that moves only while somebody runs, by as much as their next lap takes."""

    def __init__(self, laps: dict[str, list[float]]) -> None:
        self.now = 0.0
        self.laps = laps
        self.ran: list[str] = []
        self.rests: list[float] = []

    def run(self, name: str) -> None:
        self.now += self.laps[name][self.ran.count(name)]
        self.ran.append(name)

    def contender(self, name: str, batch: int) -> Contender:
        return Contender("ours", "explain", name, batch, lambda: self.run(name))


def test_everyone_runs_once_a_round_and_rests_before() -> None:
    track = Track({name: [1.0] * 4 for name in "abc"})
    race([track.contender(name, 1) for name in "abc"], 3, clock=lambda: track.now, rest=track.rests.append)
    assert all(sorted(track.ran[start : start + 3]) == ["a", "b", "c"] for start in range(0, 12, 3))
    assert len(track.rests) == len(track.ran), "pools of threads come to rest before the next one runs"


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_order_is_a_permutation_and_the_same_in_every_run(count: int) -> None:
    for number in range(7):
        assert sorted(turns(count, number)) == list(range(count))
        assert turns(count, number) == turns(count, number)


def test_nobody_always_runs_after_the_same() -> None:
    rounds = [turns(12, number) for number in range(1, 11)]
    for one in range(12):
        before = [order[order.index(one) - 1] for order in rounds if order[0] != one]
        assert len(set(before)) >= 4


def test_medians_and_minima_are_per_image_and_without_the_warm_up() -> None:
    laps = {"a": [99.0, 0.4, 0.1, 0.7, 0.2], "b": [0.001, 8.0, 2.0, 4.0, 6.0]}
    track = Track(laps)
    first, second = race(
        [track.contender("a", 1), track.contender("b", 8)], 4, clock=lambda: track.now, rest=lambda _seconds: None
    )
    assert (first.device, first.batch, second.device, second.batch) == ("a", 1, "b", 8)
    assert first.median_ms == pytest.approx(1e3 * float(np.median([0.4, 0.1, 0.7, 0.2])))
    assert first.least_ms == pytest.approx(100.0)
    assert second.median_ms == pytest.approx(5000.0 / 8)
    assert second.least_ms == pytest.approx(2000.0 / 8)
    assert second.images_per_second == pytest.approx(8 / 5.0)
