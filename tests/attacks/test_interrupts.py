"""Ctrl-C at any point of a call leaves a client that works: no lock is held, no place in the queue is lost."""

from __future__ import annotations

import os

import pytest
from support.attacks import HELD, attack
from support.children import run_child

PREPARE = """
    import io, os, random, signal, sys, threading, time
    import numpy as np
    from PIL import Image
    from bcos_sdk import Limits
    from bcos_sdk.testing import FakeClient
    from support.interrupts import interrupt, points_of

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    file = io.BytesIO()
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(file, "PNG")
    images = [file.getvalue()] * 4 + [np.zeros((20, 20, 3), np.uint8)]
    places = (os.path.join("bcos_sdk", "client"), "threading.py", "queue.py", os.path.join("concurrent", "futures"))

    def make_client():
        # Five images in batches of two, and room for two batches: a lost place would block later calls.
        return FakeClient(limits=Limits(queue=4), max_batch=2, input_size=16)
"""


@attack(
    "time",
    "Ctrl-C after any step of a call",
    before="after an interrupt in a lock's own code, every later call hung",
)
@pytest.mark.parametrize(
    "call",
    [
        "client.explain(images, timeout=60)",
        'client.predict([b"damaged", *images], on_error="return", timeout=60)',
        "[*client.predict_stream(images)]",
    ],
)
def test_an_interrupt_after_any_step_of_a_call(call: str) -> None:
    printed = run_child(
        PREPARE
        + f"""
    def call():
        {call}

    client = make_client()
    call()
    points = points_of(call, places)
    raised = 0
    for point in points:
        raised += interrupt(call, point, places)
        assert len(client.predict(images, timeout=60)) == len(images), point
    print(raised, len(points))
    client.close()
    """
    )
    raised, points = map(int, printed.split())
    assert raised > 0.8 * points, "some points are not reached in every call, for example that the device was faster"
    assert points > 100


@attack("time", "Ctrl-C after any step of `close`", before=HELD)
def test_an_interrupt_after_any_step_of_close() -> None:
    printed = run_child(
        PREPARE
        + """
    from bcos_sdk.testing._backend import LinearBackend

    freed = []
    LinearBackend.close = lambda backend: freed.append(backend)
    points = points_of(make_client().close, places)
    raised = 0
    for point in points:
        client = make_client()
        freed.clear()
        raised += interrupt(client.close, point, places)
        client.close()
        assert freed, point
    print(raised, len(points))
    """
    )
    raised, points = map(int, printed.split())
    assert raised > 0.8 * points
    assert points > 20


@attack("time", "thousands of Ctrl-C at random times", before="a lock stayed held, and every later call hung")
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_two_thousand_interrupts_at_random_times() -> None:
    printed = run_child(
        PREPARE
        + """
    wanted, sent, raised = 2000, 0, 0

    def handle(_signal, frame):
        while frame is not None:
            if frame.f_code is call.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    def send():
        global sent
        choose = random.Random(0)
        while sent < wanted:
            time.sleep(choose.random() * 0.004)
            os.kill(os.getpid(), signal.SIGINT)
            sent += 1

    def call():
        client.explain(images, timeout=60)

    client = make_client()
    signal.signal(signal.SIGINT, handle)
    threading.Thread(target=send, daemon=True).start()
    while sent < wanted:
        try:
            call()
        except KeyboardInterrupt:
            raised += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _ in range(5):
        assert len(client.explain(images, timeout=60)) == len(images)
    client.close()
    print(raised)
    """
    )
    assert int(printed) > 200
