"""Create a client, check its arguments and deadlines, close it, and send it to another process."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bundles import MAX_BATCH, copy_of, predict_with, random_pixels, small_bundle

from bcos_sdk import Client, Failure, Limits, Prediction
from bcos_sdk.errors import (
    BundleError,
    ClientClosedError,
    DeadlineError,
    DeviceUnavailableError,
    ImageTooLargeError,
    InputError,
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.predict(3), "neither an image nor a collection"),
        (lambda client: client.predict([], top_k=0), "top_k is 0"),
        (lambda client: client.explain([], top_k=-1), "top_k is -1"),
        (lambda client: client.predict_stream([], top_k=0), "top_k is 0"),
        (lambda client: client.predict([], top_k=2.0), "top_k is 2.0"),
        (lambda client: client.predict([], top_k=None), "top_k is None"),
        (lambda client: client.explain([], top_k=True), "top_k is True"),
        (lambda client: client.predict([], timeout="3 s"), "timeout is '3 s'"),
        (lambda client: client.predict([], timeout=float("nan")), "timeout is nan"),
        (lambda client: client.predict([], on_error="rais"), "on_error is 'rais'"),
        (lambda client: client.predict_stream(3), "neither an image nor a collection"),
        (lambda client: client.explain([], targets=b"fox"), "expected a target or a list"),
        (lambda client: client.explain([], targets={1, 2}), "expected a target or a list"),
        (lambda client: client.explain([], targets={"fox": 1}), "expected a target or a list"),
    ],
)
def test_wrong_arguments_are_refused_at_once(client: Client, call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call(client)
    assert caught.type is InputError, "not one of its family"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_incomplete": "ignore"}, r'on_incomplete is \'ignore\'(.|\n)*"raise" or "flag"'),
        ({"threads": 0}, "threads is 0"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"max_batch": MAX_BATCH + 1}, r"max_batch is 5(.|\n)*1 to 4(.|\n)*larger --max-batch"),
        ({"max_batch": 2.5}, "max_batch is 2.5"),
        ({"threads": "2"}, "threads is '2'"),
        ({"limits": {"bytes": 1}}, "limits is"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Client(small_bundle().path, **options)
    assert caught.type is InputError, "not one of its family"


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        Client(small_bundle().path, "cpu")  # type: ignore[call-arg]


def test_a_model_is_found_by_name_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BundleError, match=r"there is no exported model 'net'(.|\n)*bcos-sdk models list"):
        Client("net")
    copy_of(small_bundle(), tmp_path / "store" / "net")
    with Client("net", device="cpu") as client:
        assert client.manifest.model.name == "small"
    with pytest.raises(BundleError, match=r"Did you mean net\?"):
        Client("nett")
    with pytest.raises(BundleError, match="not a usable bundle"):
        Client(tmp_path / "elsewhere" / "net")
    copy_of(small_bundle("softmax"), tmp_path / "here")
    with pytest.raises(BundleError, match=r"(?s)there is no exported model 'here' in the store.*pass \./here"):
        Client("here")
    for path in ("./here", Path("here"), tmp_path / "here"):
        with Client(path, device="cpu") as here:
            assert here.manifest.probability == "softmax"


@pytest.mark.parametrize("device", ["graphics", "cuda:x", "cpu:1", ""])
def test_unknown_devices_are_refused(device: str) -> None:
    with pytest.raises(DeviceUnavailableError, match="there is no device"):
        Client(small_bundle().path, device=device)


def test_a_closed_client_refuses_calls(photograph: Path) -> None:
    client = Client(small_bundle().path, device="cpu")
    stream = client.predict_stream([photograph] * 50)
    next(stream)
    client.close()
    client.close()
    rest: list[Prediction | Failure] = []
    with pytest.raises(ClientClosedError):
        rest.extend(stream)
    assert all(isinstance(one, Prediction) for one in rest)
    for call in (client.predict, client.explain, client.predict_stream, client.explain_stream):
        with pytest.raises(ClientClosedError):
            call([photograph])
    with pytest.raises(ClientClosedError):
        asyncio.run(client.apredict([photograph]))


def test_warmup_loads_both_graphs(client: Client) -> None:
    client.warmup()


def test_the_limit_of_images_does_not_apply_to_warmup() -> None:
    with Client(small_bundle().path, device="cpu", limits=Limits(images=1)) as client:
        client.warmup()


def test_the_number_of_images_in_one_call_is_bounded(tmp_path: Path) -> None:
    with Client(small_bundle().path, device="cpu", limits=Limits(images=3)) as client:
        client.predict(random_pixels(3))
        with pytest.raises(ImageTooLargeError, match=r"more than 3 images(.|\n)*predict_stream"):
            client.predict(random_pixels(4))
        assert len(list(client.predict_stream(random_pixels(9)))) == 9


def test_a_pickled_client_is_opened_again_with_its_options() -> None:
    (pixels,) = random_pixels(1)
    with Client(small_bundle().path, device="cpu", max_batch=2, limits=Limits(queue=7)) as client:
        again = pickle.loads(pickle.dumps(client))
        with again:
            assert repr(again) == repr(client)
            assert again._limits.queue == 7
            assert again.predict(pixels) == client.predict(pixels)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(predict_with, client, pixels).result() == client.predict([pixels])


def test_a_pickled_client_finds_its_bundle_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_of(small_bundle(), tmp_path / "net")
    monkeypatch.chdir(tmp_path)
    with Client("./net", device="cpu") as client:
        text = pickle.dumps(client)
    monkeypatch.chdir("/")
    pickle.loads(text).close()


def test_a_timeout_of_zero_or_less_is_a_failure_not_a_wrong_argument(client: Client) -> None:
    """A service subtracts the time it has used from its budget, so the rest may be negative."""
    for timeout in (0, -3.5, 1e-9):
        (failure,) = client.predict(random_pixels(1), timeout=timeout, on_error="return")
        assert isinstance(failure, Failure)
        assert failure.code == "deadline_exceeded"
    with pytest.raises(DeadlineError) as caught:
        client.predict(random_pixels(1)[0], timeout=0)
    assert caught.value.source == "image 0 (ndarray)"
    for timeout in (float("inf"), 1e12, np.float32(60)):
        assert len(client.predict(random_pixels(1), timeout=timeout)) == 1


def test_images_that_are_not_finished_at_the_deadline_fail(client: Client) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            import time

            time.sleep(0.5)
            return super().read(size)

    file = io.BytesIO()
    Image.fromarray(random_pixels(1)[0]).save(file, "PNG")
    images: list[Any] = [*random_pixels(MAX_BATCH), Slow(file.getvalue())]
    results = client.predict(images, timeout=0.25, on_error="return")
    late = results[-1]
    assert isinstance(late, Failure)
    assert late.code == "deadline_exceeded"
    assert late.retryable
    assert all(isinstance(one, Prediction) for one in results[:-1])
    with pytest.raises(DeadlineError):
        client.predict(Slow(file.getvalue()), timeout=0.05)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_client_raises_an_error_instead_of_hanging(client: Client) -> None:
    images = random_pixels(1)
    calls: list[Callable[[], object]] = [
        lambda: client.predict(images),
        lambda: client.predict_stream(images),
        lambda: asyncio.run(client.apredict(images)),
    ]
    for call in calls:
        call()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                call()
            except ClientClosedError as error:
                os._exit(0 if "another process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
