"""A client of a model behind an address: addresses, options, metadata, and servers of several kinds."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import LABELS, MAX_BATCH, SIZE, cropped, random_pixels, small_bundle
from support.odd_server import OddServer, odd_server
from support.same_results import same

pytest.importorskip("urllib3")

from bcos_sdk import Client, Contrast, Remote
from bcos_sdk.backends.remote._address import Address
from bcos_sdk.errors import (
    HashMismatchError,
    InputError,
    ServerAnswerError,
    ServerRefusedError,
    ServerUnavailableError,
    UnknownLayerError,
)
from bcos_sdk.images import encode

QUICK = Remote(retries=1, connect_seconds=1, answer_seconds=20)


@pytest.fixture
def server() -> Iterator[OddServer]:
    with odd_server() as running:
        yield running


@pytest.fixture(scope="module")
def local() -> Iterator[Client]:
    with Client(small_bundle().path, device="cpu", threads=1) as client:
        yield client


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://host:8000/net", ("http", "host", 8000, "", "net")),
        ("https://host/net/", ("https", "host", 443, "", "net")),
        ("https://proxy/a/b/net-1.2_x", ("https", "proxy", 443, "/a/b", "net-1.2_x")),
        ("HTTP://Host/net", ("http", "host", 80, "", "net")),
        ("http://[::1]:9/net", ("http", "::1", 9, "", "net")),
        ("grpc://host/net", ("grpc", "host", 8001, "", "net")),
        ("grpcs://host:1/a%2Fb%20c", ("grpcs", "host", 1, "", "a/b c")),
    ],
)
def test_addresses_have_a_scheme_a_host_and_a_model(text: str, expected: tuple[Any, ...]) -> None:
    found = Address.parse(text)
    assert (found.scheme, found.host, found.port, found.prefix, found.model) == expected
    assert Address.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://host:8000", "no name of a model"),
        ("http://host:8000/", "no name of a model"),
        ("ftp://host/net", "no scheme 'ftp'"),
        ("http:///net", "no host"),
        ("http://host:99999/net", "Port out of range"),
        ("http://host:0/net", "no host, or a host or port"),
        ("http://user:secret@host/net", "it has a user"),
        ("http://host/net?x=1", "query or a fragment"),
        ("http://host/net#x", "query or a fragment"),
        ("grpc://host/a/net", "gRPC has no paths"),
        ("http://ho st/net", "no host, or a host or port"),
    ],
)
def test_what_is_no_address_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        Client(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"token": ""},
        {"token": "a\nb"},
        {"token": b"a"},
        {"connect_seconds": 0},
        {"answer_seconds": float("nan")},
        {"answer_seconds": "3"},
        {"retries": -1},
        {"retries": True},
        {"connections": 0},
        {"connections": 1.5},
        {"bundle": 3},
        {"ca_file": 3},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Remote(**options)


def test_options_of_the_other_kind_of_model_are_refused(server: OddServer) -> None:
    with pytest.raises(InputError, match="remote is given, but the model has no address"):
        Client(small_bundle().path, remote=Remote())
    for options in ({"device": "cpu"}, {"threads": 1}, {"tf32": True}, {"trust_engines": True}, {"cuda_graphs": True}):
        with pytest.raises(InputError, match=f"{next(iter(options))} is .*which decides this"):
            Client(server.address, **options)
    with pytest.raises(InputError, match="for an input of 20x28, not 32x32"):
        Client(server.address, input_size=32)
    assert not server.inferences


def test_it_says_what_is_true(server: OddServer, local: Client) -> None:
    server.parameters |= {"bcos_max_batch": "3", "bcos_precision": "tf32"}
    with Client(server.address, remote=Remote(token="s3cret", retries=0), input_size=SIZE) as client:
        assert client.device == server.address
        assert client.labels == LABELS
        assert client.manifest == local.manifest
        assert client.max_batch == 3
        assert client.precision == "tf32"
        assert "s3cret" not in repr(client) + repr(client.__reduce__())
        (result,) = client.explain(random_pixels(1))
        assert result.explanations[0].completeness.precision == "tf32"
        again = pickle.loads(pickle.dumps(client))
        with again:
            assert again.predict(random_pixels(1))[0].classes == result.prediction.classes
    assert {headers["Authorization"] for _, headers in server.requests} == {"Bearer s3cret"}


def test_batches_fit_into_what_the_server_takes(server: OddServer) -> None:
    one = 6 * SIZE[0] * SIZE[1] * 4
    server.parameters["bcos_max_body"] = str(2 * one + 5000)
    with Client(server.address) as client:
        assert client.max_batch == 2
        assert len(client.predict(random_pixels(7))) == 7
        with pytest.raises(InputError, match="The server takes no larger one"):
            Client(server.address, max_batch=MAX_BATCH)


def test_the_golden_record_comes_from_the_server_or_the_local_bundle(
    server: OddServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(server.address) as client:
        client.predict(random_pixels(1))
    assert server.inferences == 2, "the golden image was sent first"
    server.golden = None
    server.requests.clear()
    with Client(server.address) as client:
        client.predict(random_pixels(1))
    assert server.inferences == 1
    assert "does not send its golden record" in caplog.text
    server.requests.clear()
    with Client(server.address, remote=Remote(bundle=small_bundle().path)) as client:
        client.predict(random_pixels(1))
    assert server.inferences == 2


def test_a_local_bundle_must_be_the_served_one(server: OddServer) -> None:
    with pytest.raises(HashMismatchError, match="serves another model"):
        Client(server.address, remote=Remote(bundle=small_bundle("softmax").path))
    Client(server.address, sha256=small_bundle().sha256).close()
    with pytest.raises(HashMismatchError, match="expected " + "0" * 64):
        Client(server.address, sha256="0" * 64)


def test_a_server_without_a_manifest_needs_a_local_bundle(server: OddServer, local: Client) -> None:
    server.parameters.clear()
    with pytest.raises(InputError, match=r"does not send the manifest(.|\n)*Remote\(bundle="):
        Client(server.address)
    with Client(server.address, remote=Remote(bundle=small_bundle().path)) as client:
        assert client.explain(random_pixels(2)) == local.explain(random_pixels(2))


def test_a_manifest_in_the_configuration_is_found_as_on_triton(server: OddServer, local: Client) -> None:
    manifest = {"bcos_manifest": {"string_value": server.parameters.pop("bcos_manifest")}}
    server.config = {"max_batch_size": 3, "parameters": manifest | {"bcos_most_targets": {"string_value": "2"}}}
    sizes: list[tuple[int, ...]] = []
    run = server.run

    def watched(model: str, inputs: Any, outputs: list[str]) -> Any:
        sizes.append(inputs["targets"].shape if "targets" in inputs else inputs["image"].shape[:1])
        return run(model, inputs, outputs)

    server.run = watched
    with Client(server.address) as client:
        assert client.max_batch == 3
        options: dict[str, Any] = {"targets": [0, 1, 2, "mean", Contrast(3, 4)]}
        pixels = random_pixels(4)
        for one, other in zip(client.explain(pixels, **options), local.explain(pixels, **options), strict=True):
            same(one, other)
    assert max(shape[1] for shape in sizes if len(shape) == 2) == 2


def test_a_server_without_the_binary_extension_gets_json(server: OddServer, local: Client) -> None:
    server.binary = False
    with Client(server.address) as client:
        assert client.explain(random_pixels(2), weights=True) == local.explain(random_pixels(2), weights=True)


def test_a_server_that_encodes_gets_pixels(server: OddServer, local: Client) -> None:
    height, width = SIZE
    server.inputs = {"pixels": ("UINT8", (-1, height, width, 3)), "targets": server.inputs["targets"]}
    run = server.run

    def encoding(model: str, inputs: Any, outputs: list[str]) -> Any:
        assert inputs["pixels"].dtype == np.uint8
        images = np.stack([encode(one) for one in inputs.pop("pixels")])
        return run(model, {"image": images} | inputs, outputs)

    server.run = encoding
    pixels = random_pixels(2)
    with Client(server.address) as client:
        assert client.explain(pixels) == local.explain(pixels)
        with pytest.raises(InputError, match="takes 8-bit pixels"):
            client.predict(encode(cropped(pixels[0])))


def test_w_is_an_error_if_the_server_does_not_send_it(server: OddServer) -> None:
    del server.outputs["small_explain"]["weights"]
    with Client(server.address) as client:
        assert client.explain(random_pixels(1))[0].explanations[0].completeness.passed
        with pytest.raises(InputError, match="does not send W"):
            client.explain(random_pixels(1)[0], weights=True)


def test_inner_layers_are_a_clear_error(server: OddServer) -> None:
    with Client(server.address) as client:
        calls: list[Any] = [client.features, partial(client.explain_features, layer="body")]
        for call in calls:
            with pytest.raises(UnknownLayerError):
                call(random_pixels(1)[0])


def test_many_threads_get_the_results_of_their_own_images(server: OddServer, local: Client) -> None:
    images = random_pixels(24, seed=4)
    expected = local.explain(images)
    with Client(server.address, remote=Remote(connections=5)) as client, ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda place: client.explain(images[place])[0], [*range(24)] * 4))
    for place, result in enumerate(results):
        same(result.model_copy(update={"source": ""}), expected[place % 24].model_copy(update={"source": ""}))


def test_nobody_answers(tmp_path: Path) -> None:
    with odd_server() as server:
        address = server.address
    with pytest.raises(ServerUnavailableError, match="cannot be reached") as caught:
        Client(address, remote=QUICK)
    assert caught.value.retryable
    with odd_server() as server, pytest.raises(ServerRefusedError, match="answered 404: there is no such model"):
        Client(server.address.replace("small", "other"))
    with odd_server() as server:
        server.inputs["image"] = ("FP32", (-1, 3, *SIZE[::-1]))
        with pytest.raises(ServerAnswerError, match="expected image"):
            Client(server.address)
