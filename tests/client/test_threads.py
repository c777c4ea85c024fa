"""The threads of a client: calls run in order, threads are started as needed, and a forgotten pool ends its threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest
from support.slow import PIXELS
from support.waiting import until

from bcos_sdk.client._threads import DaemonThreads, Pending
from bcos_sdk.errors import ClientClosedError, InferenceError
from bcos_sdk.testing import FakeClient


def alive(name: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(name))


def test_the_first_value_of_a_pending_counts() -> None:
    pending = Pending()
    assert not pending.wait(0)
    pending.set(1)
    pending.set(2)
    assert pending.wait(0)
    assert pending.wait(None)
    assert pending.value == 1


def test_a_pending_wakes_every_thread_that_waits() -> None:
    pending = Pending()
    seen: list[bool] = []
    threads = [threading.Thread(target=lambda: seen.append(pending.wait(60))) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    pending.set(None)
    for thread in threads:
        thread.join(60)
    assert seen == [True] * 5


def test_one_thread_runs_calls_in_order() -> None:
    threads = DaemonThreads(1, "test-order")
    ran: list[int] = []
    calls = [threads.submit(ran.append, number) for number in range(100)]
    assert calls[-1].wait(60)
    assert ran == list(range(100))
    assert alive("test-order") == ["test-order-1"]
    threads.close()
    until(lambda: not alive("test-order"))


def test_a_call_never_waits_for_a_blocked_one_while_threads_are_left() -> None:
    threads, go = DaemonThreads(4, "test-busy"), threading.Event()
    blocked = [threads.submit(go.wait, 60) for _ in range(3)]
    assert threads.submit(int).wait(60)
    until(lambda: len(alive("test-busy")) == 4)
    fourth = threads.submit(go.wait, 60)
    late = threads.submit(int)
    assert not late.wait(0.1), "there are at most four threads"
    go.set()
    assert all(one.wait(60) for one in (*blocked, fourth, late))
    threads.close()
    until(lambda: not alive("test-busy"))


def test_a_failed_call_does_not_end_its_thread() -> None:
    threads = DaemonThreads(1, "test-fails")
    failed = threads.submit(exit, "the end")
    assert failed.wait(60)
    assert isinstance(failed.value, InferenceError)
    assert threads.submit(int).wait(60)
    threads.close()


def test_cancelling_answers_everyone_who_waits() -> None:
    threads, go, begun = DaemonThreads(1, "test-cancel"), threading.Event(), threading.Event()
    ran: list[int] = []

    def block() -> None:
        begun.set()
        go.wait(60)

    running = threads.submit(block)
    waiting = threads.submit(ran.append, 1)
    assert begun.wait(60)
    threads.close()
    threads.cancel()
    late = threads.submit(ran.append, 2)
    for pending in (running, waiting, late):
        assert pending.wait(60)
        assert isinstance(pending.value, ClientClosedError)
    go.set()
    until(lambda: not alive("test-cancel"))
    assert ran == []


def test_a_forgotten_pool_ends_its_threads() -> None:
    threads = DaemonThreads(2, "test-forgotten")
    assert threads.submit(int).wait(60)
    del threads
    gc.collect()
    until(lambda: not alive("test-forgotten"))


def test_a_client_that_was_not_closed_ends_its_threads_and_frees_its_model() -> None:
    before = set(threading.enumerate())
    client = FakeClient()
    client.predict(PIXELS)
    backend = weakref.ref(client._processor._runner._backend)
    del client
    gc.collect()
    until(lambda: set(threading.enumerate()) <= before)
    assert backend() is None


def test_a_pool_works_with_fewer_threads_if_the_system_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = DaemonThreads(8, "test-few")

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    calls = [threads.submit(int) for _ in range(20)]
    assert all(call.wait(60) for call in calls)
    threads.close()
