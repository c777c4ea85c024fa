"""A client with isolated decoding: the same results, and a bad decoder blocks no other call."""

from __future__ import annotations

import io
import pickle
import threading
import time
from pathlib import Path

import pytest
from PIL import Image
from support.decoders import HANG, child_pids, obedient_decoders
from support.waiting import until

from bcos_sdk import Failure, Limits, Prediction
from bcos_sdk.errors import ClientClosedError
from bcos_sdk.images import ImageSource
from bcos_sdk.testing import FakeClient

ISOLATED = Limits(decoding="isolated", decoding_seconds=60)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def photograph(size: tuple[int, int] = (300, 200)) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, "JPEG")
    return file.getvalue()


def test_results_are_those_of_decoding_in_this_process(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(photograph())
    images: list[ImageSource] = [path, photograph((64, 90)), b"no image"]
    with FakeClient() as here, FakeClient(limits=ISOLATED) as isolated:
        wanted = here.explain(images, top_k=2, on_error="return")
        assert isolated.explain(images, top_k=2, on_error="return") == wanted
        assert isolated.predict(images[0]) == here.predict(images[0])
        for one, other in zip(wanted[:2], isolated.explain(images[:2]), strict=True):
            assert not isinstance(one, Failure)
            assert (one.explanations[0].display == other.explanations[0].display).all()
        with pickle.loads(pickle.dumps(isolated)) as copy:
            assert copy.predict(images[0]) == here.predict(images[0])


def test_warmup_starts_the_processes_of_an_isolated_client_only() -> None:
    before = child_pids()
    with FakeClient() as here:
        here.warmup()
        here.predict(photograph())
        assert child_pids() == before
    with FakeClient(limits=ISOLATED) as isolated:
        assert child_pids() == before
        isolated.warmup()
        started = child_pids() - before
        assert started
        isolated.predict([photograph()] * 3)
        assert child_pids() - before == started
    assert child_pids() == before


def test_close_ends_a_call_whose_image_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    obedient_decoders(monkeypatch)
    before = child_pids()
    client = FakeClient(limits=ISOLATED)
    errors: list[Exception] = []

    def predict() -> None:
        try:
            client.predict(HANG)
        except Exception as error:
            errors.append(error)

    call = threading.Thread(target=predict)
    call.start()
    until(lambda: child_pids() != before)
    client.close()
    call.join(30)
    assert not call.is_alive()
    assert [type(error) for error in errors] == [ClientClosedError]
    until(lambda: child_pids() == before)


def test_timeout_of_a_call_holds_although_its_image_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    obedient_decoders(monkeypatch)
    limits = Limits(decoding="isolated", decoding_seconds=8)
    with FakeClient(limits=limits) as client:
        client.warmup()
        begin = time.monotonic()
        (result,) = client.predict([HANG], on_error="return", timeout=0.5)
        assert isinstance(result, Failure)
        assert result.code == "deadline_exceeded"
        assert time.monotonic() - begin < 8
        assert isinstance(client.predict(photograph())[0], Prediction)
