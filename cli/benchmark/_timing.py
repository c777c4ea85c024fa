"""Time several cases in interleaved rounds, so that a slow phase of the machine affects all of them.

The first round is a warm-up and is not counted. Each round has its own random order, the same in every run, so that no
case always follows the same other case and inherits its cache contents and clock rate.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bcos_sdk.cli.benchmark._measurements import Side, Timing, What

__all__ = ["Case", "round_order", "time_cases"]

_PAUSE_SECONDS = 0.05  # thread pools keep spinning after their work and would take the cores from the next case


@dataclass(frozen=True)
class Case:
    """A call that processes `batch` images, and how it appears in the report."""

    side: Side
    what: What
    device: str
    batch: int
    run: Callable[[], object]


def round_order(count: int, number: int) -> list[int]:
    """Return the order of the cases in round `number`: a permutation of 0 … count − 1."""
    return random.Random(number).sample(range(count), count)  # noqa: S311 - not used for security


def time_cases(
    cases: Sequence[Case],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    pause: Callable[[float], None] = time.sleep,
) -> list[Timing]:
    """Return the median and the least time per image of each case, in the order of `cases`."""
    seconds: list[list[float]] = [[] for _ in cases]
    for number in range(rounds + 1):
        for index in round_order(len(cases), number):
            pause(_PAUSE_SECONDS)
            began = clock()
            cases[index].run()
            elapsed = clock() - began
            if number:
                seconds[index].append(elapsed)
    return [_timing(case, times) for case, times in zip(cases, seconds, strict=True)]


def _timing(case: Case, seconds: Sequence[float]) -> Timing:
    per_image = [1e3 * value / case.batch for value in seconds]
    return Timing(
        side=case.side,
        what=case.what,
        device=case.device,
        batch=case.batch,
        median_ms=statistics.median(per_image),
        least_ms=min(per_image),
    )
