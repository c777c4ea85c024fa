"""Failures of gRPC servers: codes, retries, deadlines, tokens and other models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.bundles import random_pixels, small_bundle
from support.grpc_server import GrpcServer, Refusal, serving_grpc
from support.places import graph_runner, ports_of

from bcos_sdk import BcosError, Client, Remote
from bcos_sdk.errors import (
    DeadlineError,
    HashMismatchError,
    InputError,
    ServerAnswerError,
    ServerError,
    ServerRefusedError,
    ServerUnavailableError,
)

PIXELS = random_pixels(1)[0]


class Odd:
    """What the server does before and after it runs a graph."""

    def __init__(self) -> None:
        self.instead: list[Callable[[], None]] = []
        self.lie: Callable[[Any], Any] = lambda arrays: arrays
        self._run = graph_runner(small_bundle())

    def __call__(self, model: str, inputs: Any, outputs: list[str]) -> Any:
        if self.instead:
            self.instead.pop(0)()
        return self.lie(self._run(model, inputs, outputs))


def refuse(code: str) -> Callable[[], None]:
    def raise_it() -> None:
        raise Refusal(code)

    return raise_it


@pytest.fixture
def odd() -> Odd:
    return Odd()


@pytest.fixture
def server(odd: Odd) -> Iterator[GrpcServer]:
    bundle = small_bundle()
    inputs, outputs = ports_of(bundle)
    with serving_grpc("small", odd, inputs, outputs, bundle.manifest.to_json(), 3) as running:
        yield running


@pytest.fixture
def client(server: GrpcServer) -> Iterator[Client]:
    remote = Remote(retries=2, token="s3cret", answer_seconds=4)
    with Client(f"grpc://127.0.0.1:{server.port}/small", remote=remote) as opened:
        opened.explain(PIXELS)
        server.calls.clear()
        yield opened


def inferences(server: GrpcServer) -> int:
    return sum(method == "ModelInfer" for method, _ in server.calls)


def test_it_says_what_is_true_and_sends_the_token(server: GrpcServer, client: Client) -> None:
    assert client.device == f"grpc://127.0.0.1:{server.port}/small"
    assert client.max_batch == 3
    assert client.predict(PIXELS)
    assert {metadata["authorization"] for _, metadata in server.calls} == {"Bearer s3cret"}


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_failures_that_may_pass_are_tried_again(server: GrpcServer, client: Client, odd: Odd, code: str) -> None:
    odd.instead[:] = [refuse(code)] * 2
    assert client.predict(PIXELS)
    assert inferences(server) == 3
    odd.instead[:] = [refuse(code)] * 9
    with pytest.raises(ServerUnavailableError, match=code):
        client.predict(PIXELS)
    assert inferences(server) == 6


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INTERNAL", ServerError),
        ("UNKNOWN", ServerError),
        ("INVALID_ARGUMENT", ServerRefusedError),
        ("NOT_FOUND", ServerRefusedError),
        ("UNAUTHENTICATED", ServerRefusedError),
        ("PERMISSION_DENIED", ServerRefusedError),
        ("DEADLINE_EXCEEDED", DeadlineError),
    ],
)
def test_other_failures_are_not(server: GrpcServer, client: Client, odd: Odd, code: str, kind: type[BcosError]) -> None:
    odd.instead[:] = [refuse(code)]
    with pytest.raises(kind) as caught:
        client.predict(PIXELS)
    assert caught.type is kind
    assert inferences(server) == 1


def test_an_answer_that_does_not_come_is_a_deadline(server: GrpcServer, client: Client, odd: Odd) -> None:
    odd.instead[:] = [lambda: time.sleep(5)]
    with pytest.raises(DeadlineError, match="did not answer within 4 s"):
        client.predict(PIXELS)
    assert inferences(server) == 1


def test_lies_are_errors(client: Client, odd: Odd) -> None:
    odd.lie = lambda arrays: {name: array[..., :1].copy() for name, array in arrays.items()}
    with pytest.raises(ServerAnswerError):
        client.predict(PIXELS)
    odd.lie = lambda arrays: {name: array.astype(np.int64) for name, array in arrays.items()}
    with pytest.raises(ServerAnswerError):
        client.explain(PIXELS)


def test_unknown_models_and_other_bundles_are_refused(server: GrpcServer) -> None:
    with pytest.raises(ServerRefusedError, match="NOT_FOUND"):
        Client(f"grpc://127.0.0.1:{server.port}/other")
    with pytest.raises(HashMismatchError):
        Client(f"grpc://127.0.0.1:{server.port}/small", remote=Remote(bundle=small_bundle("softmax").path))


def test_nobody_answers() -> None:
    remote = Remote(retries=1, connect_seconds=1)
    with pytest.raises(ServerUnavailableError):
        Client("grpc://127.0.0.1:1/small", remote=remote)
    with pytest.raises(InputError, match="cannot read"):
        Client("grpcs://127.0.0.1:1/small", remote=Remote(ca_file="/no/such/file"))
