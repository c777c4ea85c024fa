"""Throughput of a client on JPEGs in memory: as one stream, and from many callers at once, beside the backend alone."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice

from bcos_sdk.cli.benchmark._folder import jpegs
from bcos_sdk.cli.benchmark._measurements import CallsRecord
from bcos_sdk.client import Client
from bcos_sdk.errors import InferenceError
from bcos_sdk.results import Failure

__all__ = ["measure_calls"]

_ROUNDS = 5
_SECONDS = 2.0
"""The least duration of each measurement in each round."""
_DIFFERENT = 64


def measure_calls(
    client: Client,
    bare: Callable[[], object],
    *,
    batch: int,
    callers: int,
    picture_size: tuple[int, int],
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> CallsRecord:
    """Time `bare` (the backend on one batch), `explain_stream`, and `callers` threads that explain one JPEG at a time.

    The three are interleaved. Each round measures each of them for about the same time.
    """
    pictures = list(jpegs(_DIFFERENT, picture_size))
    images = max(callers, batch, _images_in(seconds, bare, batch))
    measure: list[Callable[[], tuple[float, list[float]]]] = [
        partial(_bare, bare, images // batch),
        partial(_stream, client, pictures, images),
        partial(_callers, client, pictures, images, callers),
    ]
    times: list[list[float]] = [[], [], []]
    latencies: list[float] = []
    for number in range(rounds + 1):
        for place, one in enumerate(measure):
            took, of_calls = one()
            if number:  # the first round is a warm-up
                times[place].append(took)
                latencies += of_calls
    of_bare, of_stream, of_callers = (statistics.median(one) for one in times)
    hundredths = statistics.quantiles(latencies, n=100)
    return CallsRecord(
        images=images,
        callers=callers,
        bare_images_per_second=images // batch * batch / of_bare,
        stream_images_per_second=images / of_stream,
        callers_images_per_second=images // callers * callers / of_callers,
        median_ms=1e3 * hundredths[49],
        p99_ms=1e3 * hundredths[98],
    )


def _images_in(seconds: float, bare: Callable[[], object], batch: int) -> int:
    """The number of images that the backend alone explains in that time."""
    bare()
    began = time.perf_counter()
    bare()
    return int(seconds / (time.perf_counter() - began) * batch)


def _bare(run: Callable[[], object], batches: int) -> tuple[float, list[float]]:
    began = time.perf_counter()
    for _ in range(batches):
        run()
    return time.perf_counter() - began, []


def _stream(client: Client, pictures: Sequence[bytes], images: int) -> tuple[float, list[float]]:
    began = time.perf_counter()
    for result in client.explain_stream(islice(cycle(pictures), images)):
        if isinstance(result, Failure):
            raise InferenceError(f"the client failed on {result.source}: {result.message}")
    return time.perf_counter() - began, []


def _callers(client: Client, pictures: Sequence[bytes], images: int, callers: int) -> tuple[float, list[float]]:
    """The seconds in all, and those of each call."""
    ready = threading.Barrier(callers + 1)

    def call(first: int) -> list[float]:
        seconds = []
        ready.wait()
        for number in range(images // callers):
            began = time.perf_counter()
            client.explain(pictures[(first + number) % len(pictures)])
            seconds.append(time.perf_counter() - began)
        return seconds

    with ThreadPoolExecutor(callers) as pool:
        running = [pool.submit(call, first) for first in range(callers)]
        ready.wait()
        began = time.perf_counter()
        latencies = [seconds for one in running for seconds in one.result()]
        return time.perf_counter() - began, latencies
