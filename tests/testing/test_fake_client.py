"""`FakeClient` behaves as `Client` does, with a model that an independent computation reproduces."""

from __future__ import annotations

import asyncio
import inspect
import io
import pickle
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bcos_sdk import Client, Explained, Failure, Limits, Prediction
from bcos_sdk.bundle import BUILTIN_MODEL
from bcos_sdk.contract import TOLERANCES
from bcos_sdk.errors import (
    BcosError,
    ClientClosedError,
    DeadlineError,
    DeviceUnavailableError,
    ImagesFailedError,
    ImageTooLargeError,
    InputError,
    OutOfMemoryError,
    QueueFullError,
    UnknownTargetError,
    UnreadableImageError,
)
from bcos_sdk.images import encode
from bcos_sdk.testing import FakeClient

ROOT = Path(__file__).resolve().parents[2]


def image(seed: int = 0, size: tuple[int, int] = (90, 120)) -> Any:
    """A picture of a few coloured areas."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize(size[::-1], Image.Resampling.BICUBIC))


@pytest.fixture
def fake() -> Any:
    with FakeClient(labels=["cat", "dog", "fox"]) as client:
        yield client


def test_it_has_the_interface_of_the_client() -> None:
    for name, member in inspect.getmembers(Client):
        if name.startswith("_"):
            continue
        other = inspect.getattr_static(FakeClient, name)
        assert type(other) is type(inspect.getattr_static(Client, name)), name
        if callable(member):
            assert inspect.signature(member) == inspect.signature(getattr(FakeClient, name)), name
    ours, theirs = (inspect.signature(kind).parameters for kind in (FakeClient, Client))
    assert set(theirs) <= set(ours), "it can be constructed with the arguments of Client"
    for name, parameter in theirs.items():
        assert ours[name].kind is parameter.kind


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from(["sigmoid", "softmax"]), st.integers(1, 12))
def test_results_are_complete_and_add_up_to_the_logits(seed: int, probability: Any, classes: int) -> None:
    labels = [f"class {number}" for number in range(classes)]
    with FakeClient(labels=labels, input_size=(18, 26), probability=probability) as client:
        (result,) = client.explain(image(seed), targets=[*labels, "mean"], weights=True)
        (prediction,) = client.predict(image(seed), top_k=classes)
    logits = {score.index: score.logit for score in prediction.classes}
    assert len(logits) == classes
    for place, one in enumerate(result.explanations):
        assert one.completeness.passed
        expected = logits[place] if place < classes else np.mean(list(logits.values()))
        x = encode(one.image).astype(np.float64)
        total = float((one.weights.astype(np.float64) * x).sum()) + sum(one.bias.values())
        assert one.target.logit == pytest.approx(expected, abs=1e-5)
        assert total == pytest.approx(expected, abs=1e-4)
        assert one.contributions.shape == (18, 26)
        one.rgba()
    total_probability = sum(score.probability or 0.0 for score in prediction.classes)
    assert probability == "sigmoid" or total_probability == pytest.approx(1)


def test_results_are_the_same_in_every_run_and_differ_between_images() -> None:
    program = (
        "import numpy as np; from bcos_sdk.testing import FakeClient\n"
        "print(FakeClient().predict(np.full((80, 80, 3), 200, np.uint8))[0].to_json())"
    )
    runs = {subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1
    with FakeClient() as client:
        assert client.predict(np.full((80, 80, 3), 200, np.uint8))[0] == Prediction.from_json(runs.pop())
        best = {client.predict(image(seed))[0].classes[0].label for seed in range(20)}
        assert len(best) > 1
        batch = client.predict([image(seed) for seed in range(20)])
        for seed, prediction in enumerate(batch):
            single = client.predict(image(seed))[0]
            assert prediction.classes == single.classes, "a batch gives the same as single images"


def test_nothing_is_imported_or_read() -> None:
    program = (
        "import sys, numpy as np\nfrom bcos_sdk.testing import FakeClient\n"
        "client = FakeClient('no/such/model')\nclient.explain(np.zeros((9, 9, 3), np.uint8))\n"
        "assert not {'onnxruntime', 'openvino', 'torch', 'tensorrt', 'pandas', 'pyarrow'} & set(sys.modules)\n"
        "print(client.manifest.model.name)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "model\n"


def test_arguments_limits_and_failures_are_those_of_the_client(fake: FakeClient) -> None:
    with pytest.raises(UnknownTargetError):
        fake.explain(image(), targets="wolf")
    with pytest.raises(UnreadableImageError):
        fake.predict(b"no image")
    with pytest.raises(InputError, match="top_k"):
        fake.predict(image(), top_k=0)
    with pytest.raises(ImagesFailedError):
        fake.predict([image(), b""])
    with pytest.raises(InputError, match="threads"):
        FakeClient(threads=10**6)
    with pytest.raises(InputError, match="max_batch"):
        FakeClient(max_batch=99)
    with pytest.raises(DeviceUnavailableError):
        FakeClient(device="abacus")
    with FakeClient(limits=Limits(pixels=100)) as small, pytest.raises(ImageTooLargeError):
        small.predict(image())
    assert FakeClient(device="cuda:1").device == "cuda:1"
    assert fake.device == "cpu"
    assert fake.labels == ("cat", "dog", "fox")
    fake.close()
    with pytest.raises(ClientClosedError):
        fake.predict(image())


@pytest.mark.parametrize(
    "options",
    [
        {"labels": []},
        {"labels": "cat"},
        {"labels": [1, 2]},
        {"labels": ["cat", ""]},
        {"labels": ["cat", " "]},
        {"input_size": 0},
        {"input_size": True},
        {"input_size": (True, 32)},
        {"input_size": "large"},
        {"input_size": (3, 4, 5)},
        {"probability": "percent"},
        {"delay": -1},
        {"delay": float("inf")},
        {"delay": "long"},
    ],
    ids=str,
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        FakeClient(**options)


@pytest.mark.parametrize(
    ("device", "tf32", "precision"),
    [
        ("auto", True, "fp32"),
        ("cpu", True, "fp32"),
        ("openvino", True, "fp32"),
        ("cuda", True, "tf32"),
        ("tensorrt", True, "tf32"),
        ("cuda", False, "fp32"),
    ],
)
def test_tf32_is_the_precision_of_a_gpu_only_as_in_the_client(device: str, tf32: bool, precision: str) -> None:
    with FakeClient(device=device, tf32=tf32) as client:
        figures = client.explain(image())[0].explanations[0].completeness
    assert (figures.precision, figures.tolerance) == (precision, TOLERANCES[figures.precision])
    if device == "cpu":
        with Client(BUILTIN_MODEL, device=device, tf32=tf32) as real:
            assert real.explain(image())[0].explanations[0].completeness.precision == precision


def test_images_fail_on_demand_by_source_or_by_function() -> None:
    error = OutOfMemoryError("the device is full")
    with FakeClient(fail={"bad.jpg": error, "image 1 (ndarray)": error}) as client:
        good, by_place, by_name = client.explain([image(), image(), "bad.jpg"], on_error="return")
        assert isinstance(good, Explained)
        assert by_place == Failure.of(error, "image 1 (ndarray)")
        assert by_name == Failure.of(error, "bad.jpg")
        with pytest.raises(OutOfMemoryError, match="full") as caught:
            client.predict("bad.jpg")
        assert caught.value is not error
        assert error.source is None

    def refuse_short(picture: Any) -> BcosError | None:
        return UnreadableImageError("too short") if isinstance(picture, bytes) and len(picture) < 10 else None

    with FakeClient(fail=refuse_short) as client:
        results = list(client.predict_stream([b"short", image()]))
        assert [type(result) for result in results] == [Failure, Prediction]


def test_deadlines_and_full_queues_are_reached_on_demand() -> None:
    with FakeClient(delay=0.3, max_batch=1, limits=Limits(queue=1)) as client:
        with pytest.raises(DeadlineError):
            client.predict(image(), timeout=0.01)
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(client.predict, image()) for _ in range(6)]
        assert any(isinstance(call.exception(), QueueFullError) for call in calls)
        assert any(call.exception() is None for call in calls)


def test_streams_async_calls_warmup_and_pickling_work(fake: FakeClient) -> None:
    fake.warmup()
    pictures = [image(seed) for seed in range(11)]
    expected = fake.explain(pictures, top_k=2)
    assert list(fake.explain_stream(pictures, top_k=2)) == expected
    assert asyncio.run(fake.aexplain(pictures, top_k=2)) == expected
    other = pickle.loads(pickle.dumps(fake))
    assert other.explain(pictures, top_k=2) == expected
    assert "FakeClient('fake', device='cpu'" in repr(other)
    other.close()


def test_a_service_is_tested_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx2", reason="fastapi.testclient needs it")
    TestClient = pytest.importorskip("fastapi.testclient").TestClient  # noqa: N806 - a class

    page = (ROOT / "docs" / "service.md").read_text("utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    service = types.ModuleType("service_under_test")
    monkeypatch.setitem(sys.modules, service.__name__, service)
    exec(program, service.__dict__)
    fail = {"image 0 (bytes)": OutOfMemoryError("the device is full")}
    picture = io.BytesIO()
    Image.fromarray(image()).save(picture, "PNG")
    body = picture.getvalue()
    service.Client = partial(FakeClient, labels=["tabby", "lynx"])  # type: ignore[attr-defined]
    with TestClient(service.app) as http:
        answer = http.post("/explain?target=lynx", content=body)
        assert answer.status_code == 200
        explained = Explained.from_json(answer.content)
        assert explained.explanations[0].target.label == "lynx"
        assert explained.explanations[0].completeness.passed
        assert http.post("/explain", content=b"text").status_code == 415
        assert http.post("/explain?target=wolf", content=body).status_code == 422
    service.Client = partial(FakeClient, fail=fail)  # type: ignore[attr-defined]
    with TestClient(service.app) as http:
        answer = http.post("/explain", content=body)
        assert (answer.status_code, answer.json()["code"]) == (500, "out_of_memory")
