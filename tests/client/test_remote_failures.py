"""Servers that fail, are slow, restart, or lie: every failure has a type, and nothing wrong is returned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pytest
from support.bundles import LABELS, random_pixels, small_bundle
from support.odd_server import OddServer, hang_up, odd_server, reply

pytest.importorskip("urllib3")

from bcos_sdk import BcosError, Client, Failure, Remote
from bcos_sdk.backends.remote._retries import Retries
from bcos_sdk.errors import (
    ClientClosedError,
    DeadlineError,
    HashMismatchError,
    IncompleteExplanationError,
    InferenceError,
    SelfTestError,
    ServerAnswerError,
    ServerError,
    ServerRefusedError,
    ServerUnavailableError,
)

PIXELS = random_pixels(1)[0]
Instead = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def server() -> Iterator[OddServer]:
    with odd_server() as running:
        yield running


@pytest.fixture
def client(server: OddServer) -> Iterator[Client]:
    """A client whose self-tests have passed. The server has forgotten its requests."""
    with Client(server.address, remote=Remote(retries=2, connections=2)) as opened:
        opened.explain(PIXELS, weights=True)
        opened.predict(PIXELS)
        server.requests.clear()
        yield opened


@pytest.mark.parametrize("failure", [reply(503), reply(429), reply(502), hang_up], ids=["503", "429", "502", "break"])
def test_failures_that_may_pass_are_tried_again_a_bounded_number_of_times(
    server: OddServer, client: Client, failure: Instead
) -> None:
    expected = client.predict(PIXELS)
    server.requests.clear()
    server.instead[:] = [failure, failure]
    assert client.predict(PIXELS) == expected
    assert server.inferences == 3
    server.instead[:] = [failure] * 9
    with pytest.raises(ServerUnavailableError) as caught:
        client.predict(PIXELS)
    assert caught.value.retryable
    assert server.inferences == 6
    server.instead.clear()
    assert client.predict(PIXELS) == expected


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (reply(500, b'{"error": "it broke"}'), ServerError, "answered 500: it broke"),
        (reply(400, b'{"error": "a\\u001b[31m"}'), ServerRefusedError, r"answered 400: a\\x1b"),
        (reply(413), ServerRefusedError, "smaller max_batch"),
        (reply(401), ServerRefusedError, r"Remote\(token="),
        (reply(403), ServerRefusedError, r"Remote\(token="),
        (reply(404), ServerRefusedError, "name of the model"),
        (reply(302, Location="http://127.0.0.1:1/elsewhere"), ServerRefusedError, "answered 302"),
        (reply(504), DeadlineError, "answered 504"),
        (reply(418, b"<html>" * 50_000), ServerRefusedError, "answered 418"),
    ],
)
def test_other_failures_are_not_tried_again(
    server: OddServer, client: Client, failure: Instead, kind: type[BcosError], message: str
) -> None:
    server.instead[:] = [failure]
    with pytest.raises(kind, match=message) as caught:
        client.predict(PIXELS)
    assert caught.type is kind
    assert server.inferences == 1
    assert client.predict(PIXELS)


def test_the_waits_grow_and_are_random_and_bounded() -> None:
    retries = Retries(9)
    for retry in range(1, 10):
        ceiling = min(5.0, 0.1 * 2 ** (retry - 1))
        waits = [retries.wait_before(retry, None) for _ in range(50)]
        assert ceiling / 2 <= min(waits) < max(waits) <= ceiling
    assert retries.wait_before(1, 3.0) == 3.0
    assert retries.wait_before(1, 1e9) == 5.0


def test_an_answer_that_does_not_come_is_a_deadline_and_is_not_asked_for_again(server: OddServer) -> None:
    release = threading.Event()
    with Client(server.address, remote=Remote(answer_seconds=3)) as client:
        client.predict(PIXELS)
        server.requests.clear()
        server.instead[:] = [lambda handler: reply(503)(handler) if release.wait(20) else None]
        with pytest.raises(DeadlineError, match=r"did not answer within 3 s"):
            client.predict(PIXELS)
        release.set()
    assert server.inferences == 1


def test_a_call_ends_at_its_own_deadline_and_close_ends_the_request(server: OddServer, client: Client) -> None:
    release = threading.Event()
    server.instead[:] = [lambda handler: reply(503)(handler) if release.wait(20) else None]
    (late,) = client.predict([PIXELS], timeout=0.2, on_error="return")
    assert isinstance(late, Failure)
    assert late.code == "deadline_exceeded"
    client.close(timeout=0)
    release.set()
    with pytest.raises(ClientClosedError):
        client.predict(PIXELS)
    assert not [thread.name for thread in threading.enumerate() if "bcos-sdk-device" in thread.name and _stays(thread)]


def _stays(thread: threading.Thread) -> bool:
    thread.join(5)
    return thread.is_alive()


def test_a_server_that_restarts_is_found_again() -> None:
    with odd_server() as first:
        client = Client(first.address, remote=Remote(retries=6))
        expected = client.explain(PIXELS)
    results: list[Any] = []
    caller = threading.Thread(target=lambda: results.append(client.explain(PIXELS, on_error="return")))
    caller.start()
    time.sleep(0.2)
    with odd_server(first.port):
        caller.join(20)
        assert results == [expected]
        client.close()


def test_a_server_that_restarts_with_another_model_is_an_error() -> None:
    other = small_bundle("softmax")
    with odd_server() as first:
        client = Client(first.address, remote=Remote(retries=6))
        client.explain(PIXELS)
    with odd_server(first.port) as second:
        second.parameters["bcos_manifest"] = other.manifest.to_json()
        with client, pytest.raises(HashMismatchError, match="serves another model"):
            client.explain(PIXELS)


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The outputs with one of them changed, as far as it is there."""
    return lambda arrays: {key: change(array) if key == name else array for key, array in arrays.items()}


LIES: list[tuple[str, Any, type[BcosError]]] = [
    ("another shape", changed("contributions", lambda array: array[..., :-1].copy()), ServerAnswerError),
    ("no targets", changed("contributions", lambda array: array[:, :0].copy()), ServerAnswerError),
    ("another type", changed("logits", lambda array: array.astype(np.float64)), ServerAnswerError),
    ("integers", changed("logits", lambda array: array.astype(np.int64)), ServerAnswerError),
    ("no logits", lambda arrays: {name: one for name, one in arrays.items() if name != "logits"}, ServerAnswerError),
    ("NaN", changed("logits", lambda array: array * np.float32("nan")), InferenceError),
    ("infinity", changed("contributions", lambda array: array + np.float32("inf")), IncompleteExplanationError),
    (
        "a sum that is off",
        changed("contributions", lambda array: array * np.float32(1.001)),
        IncompleteExplanationError,
    ),
    ("another bias", changed("bias_terms", lambda array: array + np.float32(0.01)), IncompleteExplanationError),
    ("another class", changed("classes", lambda array: (array + 1) % len(LABELS)), InferenceError),
    ("no class", changed("classes", lambda array: array - 100), InferenceError),
    ("a million bytes more", lambda arrays: arrays | {"more": np.zeros(1 << 20, np.int64)}, ServerAnswerError),
]


@pytest.mark.parametrize(("lie", "kind"), [(lie, kind) for _, lie, kind in LIES], ids=[name for name, *_ in LIES])
def test_lies_are_errors(server: OddServer, client: Client, lie: Any, kind: type[BcosError]) -> None:
    server.lie = lie
    with pytest.raises(kind) as caught:
        client.explain(PIXELS, targets=2)
    assert caught.type is kind
    server.lie = lambda arrays: arrays
    assert client.explain(PIXELS)


def test_w_of_another_image_is_noticed(server: OddServer, client: Client) -> None:
    server.lie = changed("weights", lambda array: array[..., ::-1].copy())
    with pytest.raises(IncompleteExplanationError):
        client.explain(PIXELS, weights=True)


@pytest.mark.parametrize(
    "body",
    [b"", b"text", b"[]", b"{}", b'{"outputs": 3}', b'{"outputs": [{"name": "logits"}]}', b"\xff" * 50],
)
def test_what_is_no_answer_of_the_protocol_is_an_error(server: OddServer, client: Client, body: bytes) -> None:
    for headers in ({}, {"Inference_Header_Content_Length": "9999999"}, {"Inference_Header_Content_Length": "-1"}):
        server.instead[:] = [reply(200, body, **headers)]
        with pytest.raises(ServerAnswerError):
            client.predict(PIXELS)


def test_an_answer_of_another_model_is_an_error(server: OddServer, client: Client) -> None:
    server.answer_parameters["bcos_manifest_sha256"] = server.bundle.manifest.digest
    assert client.predict(PIXELS)
    server.answer_parameters["bcos_manifest_sha256"] = "0" * 64
    with pytest.raises(HashMismatchError):
        client.predict(PIXELS)


def test_a_model_that_computes_something_else_consistently_fails_the_self_test(server: OddServer) -> None:
    """Its explanations add up, so that only the golden record tells."""
    server.lie = lambda arrays: {name: one if one.dtype == np.int64 else one * 2 for name, one in arrays.items()}
    with Client(server.address) as client:
        for call in (client.predict, client.explain):
            with pytest.raises(SelfTestError, match="differ from the golden record"):
                call(PIXELS)


def test_a_golden_record_that_is_not_that_of_the_manifest_is_refused(server: OddServer) -> None:
    assert server.golden is not None
    server.golden = server.golden[:-1] + b"x"
    with pytest.raises(ServerAnswerError, match="its hash differs"):
        Client(server.address)
    server.golden += b"x"
    with pytest.raises(ServerAnswerError, match="more than the"):
        Client(server.address)


@pytest.mark.parametrize("manifest", ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": 2}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(server: OddServer, manifest: str) -> None:
    server.parameters["bcos_manifest"] = manifest
    with pytest.raises(ServerAnswerError):
        Client(server.address)


def test_an_image_that_fails_here_does_not_reach_the_server(server: OddServer, client: Client) -> None:
    good, bad = client.predict([PIXELS, b"damaged"], on_error="return")
    assert isinstance(bad, Failure)
    assert not isinstance(good, Failure)
    assert server.inferences == 1
