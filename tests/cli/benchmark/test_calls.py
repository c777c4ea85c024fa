"""Calls of a client: a stream and many callers explain every image. No test depends on measured times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.bundles import SIZE, small_bundle
from support.reports import CALLS, model_record

from bcos_sdk import Client, Limits
from bcos_sdk.cli.benchmark import CallsRecord, calls_table
from bcos_sdk.cli.benchmark._calls import measure_calls
from bcos_sdk.errors import ImageError, InferenceError


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(small_bundle().path, device="cpu", threads=1) as one:
        yield one


def measure(client: Client, bare: list[int]) -> CallsRecord:
    return measure_calls(client, lambda: bare.append(1), batch=2, callers=3, picture_size=SIZE, rounds=2, seconds=1e-9)


def test_stream_and_callers_explain_every_image(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed: list[object] = []
    called: list[object] = []
    stream, explain = client.explain_stream, client.explain

    def counted_stream(images: object) -> Iterator[object]:
        for result in stream(images):  # type: ignore[arg-type]
            streamed.append(result)
            yield result

    def counted_call(image: bytes) -> object:
        called.append(explain(image))
        return called[-1]

    monkeypatch.setattr(client, "explain_stream", counted_stream)
    monkeypatch.setattr(client, "explain", counted_call)
    bare: list[int] = []
    record = measure(client, bare)
    assert record.images == 3, "one for each caller, because so little time allows fewer"
    assert len(streamed) == len(called) == 3 * (1 + 2), "a warm-up round and two others"
    assert len(bare) == 2 + 3, "two to estimate the time of a batch, and one in each round"


def test_an_image_that_fails_stops_the_measurement() -> None:
    with (
        Client(small_bundle().path, device="cpu", threads=1, limits=Limits(pixels=4)) as client,
        pytest.raises((InferenceError, ImageError), match="pixels"),
    ):
        measure(client, [])


def test_ratios_of_calls() -> None:
    assert (CALLS.stream_efficiency, CALLS.callers_to_stream, CALLS.tail) == (0.8, 0.9, 2.5)
    header, rows = calls_table(model_record())
    assert rows == [["cpu", "100", "80.0", "0.80", "32", "72.0", "0.90", "400", "2.50"]]
    assert len(header) == len(rows[0])
    assert calls_table(model_record(devices={}))[1] == []
