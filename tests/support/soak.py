"""A long run of mixed calls with good and hostile images in one process, with its use of memory and other resources.

`python -m support.soak BUNDLE DEVICE CALLS CYCLES` prints a `Soak` as JSON. Every result is compared with that of the
same image alone, so that a call which returns the result of another image fails the run.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import io
import json
import os
import random
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bcos_sdk import BcosError, Client, Contrast, Explained, Failure, Limits, Prediction
from support.image_files import png, png_chunk

__all__ = ["Soak", "Usage", "can_measure", "in_threads"]

THREADS = 4
PHASES = 10
Outcome = tuple[str, float]
"""A label and its logit, or the code of an error and 0."""


@dataclass(frozen=True)
class Usage:
    """What the process holds while no call runs."""

    memory: int
    descriptors: int
    threads: int
    children: int


@dataclass
class Soak:
    """The figures of a run: `calls[i]` was measured after the i-th tenth of the calls, `cycles[i]` likewise."""

    calls: list[Usage] = field(default_factory=list)
    cycles: list[Usage] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    """How many images ended so: "result", or the code of an error."""


def can_measure() -> bool:
    return sys.platform == "linux"


def usage() -> Usage:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free, but was not yet returned, is no leak
    process = Path("/proc/self")
    pages = int((process / "statm").read_text().split()[1])
    tasks = list((process / "task").iterdir())
    children = sum(map(_children_of, tasks))
    return Usage(pages * os.sysconf("SC_PAGE_SIZE"), len(list((process / "fd").iterdir())), len(tasks), children)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work` with 0, 1, … in threads, wait for all, and raise the first error."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _children_of(task: Path) -> int:
    try:
        return len((task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
        return 0


def encoded(pixels: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(options.pop("mode", "RGB")).save(file, kind, **options)
    return file.getvalue()


def images(folder: Path) -> dict[str, Any]:
    """Good images and hostile ones, by name."""
    first, second, third = np.random.default_rng(0).integers(0, 256, (3, 60, 80, 3), dtype=np.uint8)
    jpeg, lossless = encoded(first, "JPEG"), encoded(second, "PNG")
    (folder / "good.jpg").write_bytes(jpeg)
    (folder / "text.jpg").write_text("not an image")
    frames = [Image.fromarray(pixels) for pixels in (second, third)]
    giant = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    return {
        "a JPEG": jpeg,
        "a PNG": lossless,
        "a path": folder / "good.jpg",
        "an array": third,
        "a file": lambda: io.BytesIO(lossless),
        "a CMYK JPEG": encoded(first, "JPEG", mode="CMYK"),
        "a 16-bit PNG": png(second.astype(np.uint16) * 257),
        "an animation": encoded(first, "GIF", save_all=True, append_images=frames),
        "one pixel": encoded(first[:1, :1], "PNG"),
        "one line": encoded(np.repeat(first[:1], 4000, axis=1), "PNG"),
        "a truncated JPEG": jpeg[: len(jpeg) // 2],
        "a truncated PNG": lossless[: len(lossless) // 2],
        "a header of 10^10 pixels": b"\x89PNG\r\n\x1a\n" + giant + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b""),
        "a file over the limit": lossless + bytes(2 << 20),
        "text": folder / "text.jpg",
        "no bytes": b"",
        "no file": folder / "missing.jpg",
        "a folder": folder,
        "None": None,
        "a number": 3.5,
        "an array of one dimension": np.zeros(7, np.uint8),
        "an array of NaN": np.full((6, 20, 28), np.nan, np.float32),
    }


def outcome(result: Prediction | Explained | Failure) -> Outcome:
    if isinstance(result, Failure):
        return result.code, 0.0
    prediction = result.prediction if isinstance(result, Explained) else result
    return str(prediction.classes[0].label), prediction.classes[0].logit


class Caller:
    """Calls one client in many ways and checks every result."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._images = images(folder)
        self._expected = {name: self._alone(name) for name in self._images}
        good = sum(label in client.labels for label, _ in self._expected.values())
        assert good >= 9, self._expected
        assert len(self._images) - good >= 10, self._expected
        self._lock = threading.Lock()
        self._outcomes: Counter[str] = Counter()

    def _source(self, name: str) -> Any:
        image = self._images[name]
        return image() if callable(image) else image

    def _alone(self, name: str) -> Outcome:
        (result,) = self._client.predict([self._source(name)], on_error="return")
        return outcome(result)

    def _check(self, names: list[str], results: list[Any], also: tuple[str, ...] = ()) -> None:
        assert len(names) == len(results)
        for name, result in zip(names, results, strict=True):
            label, logit = outcome(result)
            expected, value = self._expected[name]
            if label not in also:
                assert label == expected, (name, label, expected)
                assert abs(logit - value) <= 1e-4 * max(1, abs(value)), (name, logit, value)
            with self._lock:
                self._outcomes["result" if label in self._client.labels else label] += 1

    def call(self, chance: random.Random) -> None:
        """One call that the random numbers choose."""
        client = self._client
        names = chance.choices(list(self._images), k=chance.randint(1, 6))
        sources = [self._source(name) for name in names]
        several: list[Any] = [[0, "fox", 3], [[1, 2]] * len(names)]
        targets = chance.choice([None, 2, "lynx", "mean", "lynx vs fox", Contrast(1), *several])
        arguments: dict[str, Any] = {"targets": targets, "weights": chance.random() < 0.3, "on_error": "return"}
        way = chance.randrange(8)
        if way <= 1:
            self._check(names, client.predict(sources, on_error="return"))
        elif way <= 3:
            self._check(names, client.explain(sources, **arguments))
        elif way == 4:
            self._check(names, asyncio.run(client.aexplain(sources, **arguments)))
        elif way == 5:  # some images are too late
            results = client.explain(sources, **arguments, timeout=chance.choice([0, 1e-4, 2e-3]))
            self._check(names, results, also=("deadline_exceeded",))
        elif way == 6:  # a stream that its reader may leave early
            stream = client.explain_stream(sources, top_k=2)
            results = [next(stream) for _ in range(chance.randint(1, len(names)))]
            self._check(names[: len(results)], results)
        else:
            self._refused(chance)

    def _refused(self, chance: random.Random) -> None:
        """A call with a wrong argument."""
        explain = self._client.explain
        refused = [
            partial(explain, [], targets="nobody"),
            partial(explain, [], targets={1}),
            partial(explain, [], top_k=0),
            partial(explain, 3),
            partial(explain, [], timeout=float("nan")),
        ]
        try:
            chance.choice(refused)()
        except BcosError as error:
            with self._lock:
                self._outcomes[error.code] += 1
        else:
            raise AssertionError("a wrong argument was accepted")

    def run(self, count: int, seed: int) -> None:
        """Make this many calls from several threads at once."""

        def work(number: int) -> None:
            chance = random.Random(f"{seed} {number}")
            for _ in range(count // THREADS):
                self.call(chance)

        in_threads(THREADS, work)

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(sorted(self._outcomes.items()))


def run(bundle: str, device: str, calls: int, cycles: int) -> Soak:
    soak = Soak()
    limits = Limits(bytes=1 << 20)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Client(bundle, device=device, threads=1, limits=limits) as client:
            caller = Caller(client, folder)
            for phase in range(PHASES):
                caller.run(calls // PHASES, phase)
                soak.calls.append(usage())
            soak.outcomes = caller.outcomes
        for _ in range(PHASES):
            for number in range(cycles // PHASES):
                with Client(bundle, device=device, threads=1, limits=limits) as client:
                    Caller(client, folder).call(random.Random(number))
            soak.cycles.append(usage())
    return soak


if __name__ == "__main__":
    print(json.dumps(asdict(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
