"""Contenders run in turns, so that whatever slows the machine down for a while slows all of them down.

The first round warms up and is not counted. Each round has another order, the same in every run, so that none always
runs in the cache and the clock rate that the same other one left behind.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bcos_sdk.cli.benchmark._report import Side, Timing, What

__all__ = ["Contender", "race", "turns"]

_PAUSE = 0.05  # pools of threads keep spinning after their work, and would take the cores from the next


@dataclass(frozen=True)
class Contender:
    """Something that is done to `batch` images, and by whom."""

    side: Side
    what: What
    device: str
    batch: int
    run: Callable[[], object]


def turns(count: int, number: int) -> list[int]:
    """Who runs in which order in round `number`."""
    return random.Random(number).sample(range(count), count)  # noqa: S311 - nobody gains by guessing it


def race(
    contenders: Sequence[Contender],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[float], None] = time.sleep,
) -> list[Timing]:
    """The median and the least time per image of each contender, in the order in which they were given."""
    seconds: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds + 1):
        for index in turns(len(contenders), number):
            rest(_PAUSE)
            began = clock()
            contenders[index].run()
            elapsed = clock() - began
            if number:
                seconds[index].append(elapsed)
    return [_timing(contender, times) for contender, times in zip(contenders, seconds, strict=True)]


def _timing(contender: Contender, seconds: Sequence[float]) -> Timing:
    per_image = [1e3 * value / contender.batch for value in seconds]
    return Timing(
        side=contender.side,
        what=contender.what,
        device=contender.device,
        batch=contender.batch,
        median_ms=statistics.median(per_image),
        least_ms=min(per_image),
    )
