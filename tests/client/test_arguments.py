"""Numbers without bounds: huge timeouts and numbers of threads."""

from __future__ import annotations

import asyncio
import math
import os
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner
from support.bundles import random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.cli import main
from bcos_sdk.errors import DeadlineError, InputError
from bcos_sdk.limits import MOST_THREADS

IMAGE = random_pixels(1)
HUGE = pytest.param(10**400, id="10**400")
HUGER = pytest.param(10**5000, id="10**5000")  # Python does not write it in decimal


@pytest.mark.parametrize("timeout", [None, HUGE, HUGER, math.inf, 1e300, 9e9, 60, Fraction(61, 2)])
def test_a_timeout_may_be_any_number(client: Client, timeout: Any) -> None:
    assert len(client.predict(IMAGE, timeout=timeout)) == 1
    assert len(asyncio.run(client.apredict(IMAGE, timeout=timeout))) == 1


@pytest.mark.parametrize("timeout", [0, -1, pytest.param(-(10**400), id="-10**400"), -math.inf])
def test_a_timeout_that_has_passed_is_a_deadline_error(client: Client, timeout: Any) -> None:
    with pytest.raises(DeadlineError):
        client.predict(IMAGE[0], timeout=timeout)
    with pytest.raises(DeadlineError):
        asyncio.run(client.apredict(IMAGE[0], timeout=timeout))


@pytest.mark.parametrize("timeout", [math.nan, True, "5", b"5", [5], 5j])
def test_other_timeouts_are_refused(client: Client, timeout: Any) -> None:
    with pytest.raises(InputError, match=r"timeout is .*expected a number of seconds or None"):
        client.predict(IMAGE, timeout=timeout)
    with pytest.raises(InputError, match="timeout is"):
        asyncio.run(client.apredict(IMAGE, timeout=timeout))


@pytest.mark.parametrize("threads", [MOST_THREADS + 1, 1_000_000, HUGE, HUGER, 0, -1, True, 2.0])
def test_the_number_of_threads_is_bounded_with_a_true_message(threads: Any) -> None:
    """A million threads made ONNX Runtime hang."""
    with pytest.raises(InputError, match=rf"threads is .*expected a whole number, 1 to {MOST_THREADS}\n") as caught:
        Client(small_bundle().path, device="cpu", threads=threads)
    assert f"This machine has {os.cpu_count()} cores" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_command_line_has_the_same_bound() -> None:
    done = CliRunner().invoke(main, ["predict", "cat.jpg", "--threads", "1000000"])
    assert done.exit_code == 2
    assert f"1000000 is not in the range 1<=x<={MOST_THREADS}" in done.stderr
