"""Runs, iterators and files that never end: `close` returns, timeouts hold, and the process ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.attacks import attack, no_attack
from support.bundles import random_pixels
from support.children import run_child
from support.slow import PIXELS, SlowBackend, SlowClient, waiting
from support.waiting import until

from bcos_sdk import Client, Failure, Limits
from bcos_sdk.errors import BcosError, ClientClosedError, DeadlineError, InputError
from bcos_sdk.testing import FakeClient

A_HANG = 60.0
"""Seconds after which a call counts as hanging. Without a fix these calls never return."""


@attack("time", "a run that never ends, then `close`", before="`close` had no timeout")
def test_close_returns_although_a_run_never_ends(slow: SlowBackend, caplog: pytest.LogCaptureFixture) -> None:
    client = SlowClient(slow, queue=100)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.predict, PIXELS[:8], on_error="return")
        assert slow.begun.wait(20)
        queued = pool.submit(client.predict, PIXELS[:2], on_error="return")
        until(lambda: waiting(client._processor) == 2)
        with caplog.at_level(logging.WARNING, "bcos_sdk"):
            client.close(timeout=0.2)
        for call in (running, queued):
            assert {one.code for one in call.result(A_HANG) if isinstance(one, Failure)} == {"client_closed"}
    (record,) = [one for one in caplog.records if one.name == "bcos_sdk"]
    assert "cpu" in record.getMessage()
    assert "bcos-sdk-device-1" in record.getMessage()
    assert any(thread.name == "bcos-sdk-device-1" for thread in threading.enumerate())
    assert not slow.closed, "nothing is freed while the run uses it"
    client.close()
    slow.go.set()
    until(lambda: slow.closed)  # the thread that was left behind frees the memory when its run ends


@attack("time", "a run that never ends, then `aclose`", before="there was no `aclose`, and `close` had no timeout")
def test_aclose_returns_and_does_not_block_the_event_loop(slow: SlowBackend) -> None:
    async def close() -> int:
        client = SlowClient(slow, queue=100)
        call = asyncio.create_task(client.apredict(PIXELS[0]))
        await asyncio.get_running_loop().run_in_executor(None, slow.begun.wait, 20)
        closing = asyncio.create_task(client.aclose(timeout=0.5))
        turns = 0
        while not closing.done():
            await asyncio.sleep(0.01)
            turns += 1
        await closing
        with pytest.raises(ClientClosedError):
            await call
        with pytest.raises(ClientClosedError):
            await client.apredict(PIXELS[0])
        return turns

    assert asyncio.run(asyncio.wait_for(close(), A_HANG)) > 5


HUNG = """
    import ctypes, logging, sys, threading, time
    import numpy as np
    from bcos_sdk.testing import FakeClient
    from bcos_sdk.testing._backend import LinearBackend

    def hang(backend, images):
        begun.set()
        while True:
            if how == "python":
                threading.Event().wait()
            else:
                ctypes.CDLL(None).pause()  # native code, as a hung driver

    how, end = sys.argv[1:]
    begun = threading.Event()
    LinearBackend.predict = hang
    client = FakeClient()
    threading.Thread(target=client.predict, args=([np.zeros((9, 9, 3), np.uint8)],), daemon=True).start()
    begun.wait()
    if end == "closed":
        client.close(timeout=0.1)
    print("ended")
    sys.exit(3)
"""


@attack("time", "a run that never ends, then the end of the process", before="the process never ended")
@pytest.mark.parametrize("end", ["closed", "not closed"])
@pytest.mark.parametrize(
    "how", ["python", pytest.param("native", marks=pytest.mark.skipif(os.name == "nt", reason=""))]
)
def test_a_process_with_a_hung_run_ends_with_its_exit_code(how: str, end: str) -> None:
    assert run_child(HUNG, how, end, exit_code=3) == "ended\n"


LONG = """
    import sys, threading, time
    from pathlib import Path
    import numpy as np
    from bcos_sdk.backends import Device, RUNTIMES, TensorSpec
    from bcos_sdk.testing import FakeClient
    from bcos_sdk.testing._backend import LinearBackend

    path, runtime, how = sys.argv[1:]
    (runtime,) = [one for one in RUNTIMES if one.name == runtime]
    graph = runtime.open_onnx(Path(path), 0, threads=1)

    def predict(backend, images):
        begun.set()
        try:
            graph.run({"x": np.ones((8000, 512), np.float32)}, {"y": TensorSpec((8000, 512), "float32")})
            print("not stopped", flush=True)
        finally:
            ended.set()

    begun, ended = threading.Event(), threading.Event()
    LinearBackend.predict = predict
    if how != "deaf":
        LinearBackend.stop = lambda backend: graph.stop()
    client = FakeClient()
    threading.Thread(target=client.predict, args=([np.zeros((9, 9, 3), np.uint8)],), daemon=True).start()
    begun.wait()
    time.sleep(0.3)
    if how == "closed":
        client.close(timeout=0)
        assert ended.wait(60)
    sys.exit(3)
"""


@attack(
    "time",
    "a batch that computes for many minutes, then `close` or the end of the process",
    before="`close` and the process waited for the end of the run",
)
@pytest.mark.needs_torch
@pytest.mark.parametrize("runtime", ["cpu", "openvino"])
@pytest.mark.parametrize("how", ["closed", "not closed", "deaf"])
def test_a_real_run_is_ended(tmp_path: Path, runtime: str, how: str) -> None:
    """`deaf`: the runtime is not told to stop, so its threads compute while the process ends."""
    if runtime == "openvino":
        pytest.importorskip("openvino")
    import numpy as np
    from onnx import helper
    from support.tiny_onnx import write_onnx

    count = 500  # each node takes some tenths of a second
    nodes = [
        helper.make_node("MatMul", ["x" if n == 0 else f"h{n}", "w"], [f"h{n + 1}" if n < count - 1 else "y"])
        for n in range(count)
    ]
    weights = {"w": np.eye(512, dtype=np.float32)}
    path = write_onnx(tmp_path / "long.onnx", nodes, x=[512], y=[512], weights=weights)
    assert run_child(LONG, str(path), runtime, how, exit_code=3) == ""


class SilentFile:
    """A file that blocks until it is released."""

    def __init__(self, release: threading.Event) -> None:
        self._release = release

    def read(self, size: int = -1) -> bytes:
        self._release.wait()
        return b""


def silent_iterator(release: threading.Event) -> Iterator[Any]:
    yield PIXELS[0]
    release.wait()


@attack(
    "time",
    "an iterator or a file that blocks, in an async call with a timeout",
    before="no return in 60 s",
)
@pytest.mark.parametrize("images", [silent_iterator, lambda release: [PIXELS[0], SilentFile(release)]])
@pytest.mark.parametrize("call", ["apredict", "aexplain"])
def test_the_timeout_of_an_async_call_holds(call: str, images: Callable[[threading.Event], Any]) -> None:
    release = threading.Event()
    client = FakeClient()

    async def run() -> None:
        with pytest.raises(DeadlineError):
            await getattr(client, call)(images(release), timeout=0.2, on_error="return")
        assert await client.apredict(PIXELS[0]), "other calls go on"

    try:
        asyncio.run(asyncio.wait_for(run(), A_HANG))
        client.close(timeout=0.2)
    finally:
        release.set()


@attack("time", "an endless iterator of images, slower than the timeout", before="the call took `images` steps of it")
def test_an_endless_iterator_ends_at_the_timeout() -> None:
    def slowly() -> Iterator[Any]:
        for image in itertools.cycle(random_pixels(1)):
            time.sleep(0.05)
            yield image

    with FakeClient() as client:
        began = time.monotonic()
        with pytest.raises(DeadlineError, match="iterable of images"):
            client.predict(slowly(), timeout=0.3)
        assert time.monotonic() - began < A_HANG, "4096 images would take 200 s"


@attack("time", "a million targets for one image, or endlessly many", before="there was no limit")
@pytest.mark.parametrize(
    "targets",
    [
        lambda: [0] * 1_000_000,
        lambda: [[0] * 1_000_000],
        lambda: itertools.repeat(0),
        lambda: [itertools.repeat(0)],
        lambda: itertools.repeat([0]),
    ],
    ids=["one list", "list of an image", "endless", "endless for an image", "endless lists"],
)
def test_targets_are_bounded(targets: Callable[[], Any]) -> None:
    with FakeClient() as client, pytest.raises(InputError) as caught:
        client.explain(PIXELS[0], targets=targets())
    assert caught.type is InputError
    assert "Limits(targets=" in str(caught.value) or "1 images" in str(caught.value)


@no_attack
def test_the_limit_of_targets_counts_targets_ranks_and_contrasts() -> None:
    with FakeClient(limits=Limits(targets=3), labels=list("abcdefgh")) as client:
        assert len(client.explain(PIXELS[0], top_k=3)[0].explanations) == 3
        assert len(client.explain(PIXELS[0], targets=["a", "b", "a"])[0].explanations) == 3
        assert len(client.explain(PIXELS[0], targets=["a vs b", "b vs c"])[0].explanations) == 2
        for options in ({"top_k": 4}, {"targets": list("abcd")}, {"targets": ["a vs b", "c vs d"]}):
            with pytest.raises(InputError, match=r"the limit is 3(.|\n)*Limits\(targets="):
                client.explain(PIXELS[0], **options)
        results = client.explain(PIXELS[:2], targets=[["a"], list("abcd")], on_error="return")
        assert [isinstance(one, Failure) for one in results] == [False, True], "only its image fails"
        many = client.explain(PIXELS[:6], targets=[["a"]] * 6)
        assert len(many) == 6, "the number of images is not bounded by it"


@no_attack
@pytest.mark.parametrize("timeout", ["3 s", float("nan"), True])
def test_a_wrong_timeout_of_close_is_refused(client: Client, timeout: Any) -> None:
    with pytest.raises(BcosError, match="timeout is"):
        client.close(timeout=timeout)
