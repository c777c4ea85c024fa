"""The client on real ONNX Runtime, against autograd in float64."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence
from support.bundles import (
    LABELS,
    MAX_BATCH,
    SIZE,
    copy_of,
    cropped,
    explain_by_autograd,
    predict_with,
    random_pixels,
    small_bundle,
)

from bcos_sdk import Client, Contrast, Explained, Failure, Limits, Prediction
from bcos_sdk.errors import (
    BundleError,
    ClientClosedError,
    DeadlineError,
    DeviceError,
    ImagesFailedError,
    ImageTooLargeError,
    InputError,
    UnknownTargetError,
    UnreadableImageError,
)
from bcos_sdk.images import encode


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(small_bundle().path, device="cpu") as made:
        yield made


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.fromarray(random_pixels(1, size=(90, 120))[0]).save(path)
    return path


def unit(index: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(index), len(LABELS)).double()


def check(explained: Explained, pixels: Any, *, coefficients: list[torch.Tensor]) -> None:
    """W(x), contributions and bias of each explanation are autograd's."""
    seen = cropped(pixels)
    assert len(explained.explanations) == len(coefficients)
    for explanation, wanted in zip(explained.explanations, coefficients, strict=True):
        logit, weights = explain_by_autograd(seen, wanted)
        contributions = (weights.numpy() * encode(seen).astype(np.float64)).sum(0)
        assert explanation.target.logit == pytest.approx(logit, rel=1e-4, abs=1e-5)
        scale = np.abs(contributions).max()
        np.testing.assert_allclose(explanation.contributions, contributions, atol=1e-5 * scale)
        np.testing.assert_allclose(explanation.weights, weights.numpy(), atol=1e-5 * float(weights.abs().max()))
        assert sum(explanation.bias.values()) == pytest.approx(logit - contributions.sum(), rel=1e-4, abs=1e-5)
        assert explanation.completeness.passed
        np.testing.assert_array_equal(explanation.image, seen)


def test_as_printed_in_the_documentation(photograph: Path, tmp_path: Path) -> None:
    picture = Image.open(photograph).copy()
    array, contents = np.asarray(picture), photograph.read_bytes()
    with Client(str(small_bundle().path), device="auto") as client:
        results = client.explain([str(photograph), picture, array, contents], top_k=2)
        for result in results:
            best = result.prediction.classes[0]
            assert best.label in LABELS
            assert 0 < best.probability < 1
            e = result.explanations[0]
            assert e.target.label == best.label
            assert e.contributions.shape == SIZE
            assert set(e.bias) == {"position", "head.bias"}
            assert e.completeness.passed
            e.overlay().save(tmp_path / "why.png")
    sources = [result.source for result in results]
    assert sources == [str(photograph), "image 1 (Image)", "image 2 (ndarray)", "image 3 (bytes)"]
    for other in results[1:]:
        np.testing.assert_array_equal(other.explanations[1].contributions, results[0].explanations[1].contributions)


@pytest.mark.parametrize("count", [1, 2, 3, MAX_BATCH, MAX_BATCH + 1, 3 * MAX_BATCH + 2])
def test_explanations_are_autograds_at_every_batch_size(client: Client, count: int) -> None:
    images = random_pixels(count, seed=count)
    results = client.explain(images, weights=True)
    assert len(results) == count
    for result, pixels in zip(results, images, strict=True):
        best = result.prediction.classes[0].index
        assert result.explanations[0].target.index == best
        check(result, pixels, coefficients=[unit(best)])


def test_predictions_are_autograds(client: Client) -> None:
    images = random_pixels(6)
    for prediction, pixels in zip(client.predict(images, top_k=99), images, strict=True):
        logits = [explain_by_autograd(cropped(pixels), unit(index))[0] for index in range(len(LABELS))]
        ranked = sorted(range(len(LABELS)), key=lambda index: -logits[index])
        assert [score.index for score in prediction.classes] == ranked
        for score in prediction.classes:
            assert score.logit == pytest.approx(logits[score.index], rel=1e-4, abs=1e-5)
            assert score.probability == pytest.approx(1 / (1 + np.exp(-logits[score.index])), rel=1e-4)
            assert score.label == LABELS[score.index]
        assert prediction.model == "small"
    assert [len(one.classes) for one in client.predict(images, top_k=2)] == [2] * 6
    assert len(client.predict(images[0])[0].classes) == 5


def test_targets_of_every_kind(client: Client) -> None:
    (pixels,) = random_pixels(1, seed=5)
    targets: Any = [3, "lynx", "mean", Contrast("fox", "lynx"), "fox vs mean"]
    mean = torch.full((len(LABELS),), 1 / len(LABELS))
    wanted = [unit(3), unit(1), mean, unit(2) - unit(1), unit(2) - mean]
    (result,) = client.explain(pixels, targets=targets, weights=True)
    check(result, pixels, coefficients=wanted)
    labels = [explanation.target.label for explanation in result.explanations]
    assert labels == ["crane, bird", "lynx", "mean", "fox vs lynx", "fox vs mean"]
    assert [explanation.target.probability is None for explanation in result.explanations] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_each_image_can_have_targets_of_its_own(client: Client) -> None:
    images = random_pixels(6, seed=6)
    targets: Any = [[0], [1], ["fox", 1], [2], ["nobody"], [0, 1, 2, 3, 4, 5, 6]]
    results = client.explain(images, targets=targets, weights=True, on_error="return")
    failure = results[4]
    assert isinstance(failure, Failure)
    assert failure.code == "unknown_target"
    expected = {0: [0], 1: [1], 2: [2, 1], 3: [2], 5: list(range(7))}
    for place, indices in expected.items():
        result = results[place]
        assert isinstance(result, Explained)
        check(result, images[place], coefficients=[unit(index) for index in indices])


def test_arithmetic_is_the_contrast(client: Client) -> None:
    (pixels,) = random_pixels(1, seed=7)
    targets: Any = [0, 1, "mean", Contrast(0, 1), Contrast(0)]
    one, two, mean, contrast, corrected = client.explain(pixels, targets=targets, weights=True)[0].explanations
    assert one - two == contrast
    assert one - mean == corrected


def test_weights_come_on_request(client: Client) -> None:
    (pixels,) = random_pixels(1)
    assert set(client.explain(pixels)[0].explanations[0].arrays) == {"contributions", "image"}
    assert set(client.explain(pixels, weights=True)[0].explanations[0].arrays) == {"contributions", "image", "weights"}


def test_results_do_not_share_memory(client: Client) -> None:
    one, two = (result.explanations[0] for result in client.explain(random_pixels(2)))
    assert one.contributions.base is None or not np.shares_memory(one.contributions, two.contributions)


def test_softmax_where_the_manifest_says_so() -> None:
    images = random_pixels(3)
    with Client(small_bundle("softmax").path, device="cpu") as client:
        for prediction in client.predict(images, top_k=7):
            logits = np.array([score.logit for score in prediction.classes])
            expected = torch.softmax(torch.from_numpy(logits), 0)
            np.testing.assert_allclose([score.probability for score in prediction.classes], expected, rtol=1e-6)


def test_a_model_without_labels_counts(client: Client) -> None:
    assert client.labels == LABELS
    with Client(small_bundle(labels=False).path, device="cpu") as unnamed:
        assert unnamed.labels == tuple("0123456")
        assert unnamed.predict(random_pixels(1))[0].classes[0].label in unnamed.labels


def test_streams_give_what_lists_give(client: Client) -> None:
    images: list[Any] = random_pixels(11)
    images[4] = b"damaged"
    listed = client.explain(images, top_k=2, on_error="return")
    assert list(client.explain_stream(iter(images), top_k=2)) == listed
    assert list(client.predict_stream(iter(images))) == client.predict(images, on_error="return")
    assert isinstance(listed[4], Failure)
    assert list(client.predict_stream([])) == []
    assert client.predict([]) == []


def test_one_image_alone_is_a_stream_of_one(client: Client, photograph: Path) -> None:
    (pixels,) = random_pixels(1)
    for image in (pixels, str(photograph), photograph.read_bytes(), Image.open(photograph).copy()):
        assert len(list(client.predict_stream(image))) == 1  # type: ignore[arg-type]
        assert len(list(client.explain_stream(image))) == 1  # type: ignore[arg-type]


def levels(pixels: Any) -> int:
    return round(float(np.asarray(pixels).mean()))


@pytest.mark.parametrize("encoded", [False, True])
def test_a_buffer_that_is_filled_again_is_read_in_time(client: Client, encoded: bool) -> None:
    """The frames of a camera: one array, new contents for each image."""
    shades = [0, 40, 80, 120, 160, 200, 240] * 3
    buffer = np.zeros((6, *SIZE), np.float32) if encoded else np.zeros((*SIZE, 3), np.uint8)

    def frames() -> Iterator[Any]:
        for shade in shades:
            frame = np.full((*SIZE, 3), shade, np.uint8)
            buffer[...] = encode(frame) if encoded else frame
            yield buffer

    for shade, result in zip(shades, client.explain_stream(frames()), strict=True):
        assert isinstance(result, Explained)
        assert levels(result.explanations[0].image) == shade
        assert result.explanations[0].completeness.passed


def test_the_frames_of_an_animation_are_seen_one_by_one(client: Client) -> None:
    shades = [0, 80, 160, 240] * 3
    file = io.BytesIO()
    first, *others = (Image.new("L", (64, 48), shade) for shade in shades)
    first.save(file, "GIF", save_all=True, append_images=others, duration=list(range(10, 130, 10)))
    with Image.open(file) as animation:
        results = list(client.explain_stream(ImageSequence.Iterator(animation)))
    seen = [levels(result.explanations[0].image) for result in results if isinstance(result, Explained)]
    assert seen == shades


@pytest.mark.parametrize("suffix", ["PNG", "WEBP", "BMP", "JPEG"])
def test_a_picture_that_is_not_loaded_yet_can_be_shared(client: Client, suffix: str) -> None:
    file = io.BytesIO()
    Image.fromarray(random_pixels(1, size=(400, 500))[0]).save(file, suffix)
    expected = client.predict(file.getvalue())[0].classes[0].logit
    for _ in range(5):
        with Image.open(io.BytesIO(file.getvalue())) as lazy, ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client.predict, [lazy] * 3) for _ in range(4)]
            for prediction in (one for call in calls for one in call.result()):
                assert prediction.classes[0].logit == pytest.approx(expected, rel=1e-4)


def test_a_stream_runs_only_a_few_batches_ahead(client: Client) -> None:
    taken = 0

    def endless() -> Iterator[Any]:
        nonlocal taken
        (pixels,) = random_pixels(1)
        while True:
            taken += 1
            yield pixels

    stream = client.predict_stream(endless())
    next(stream)
    assert taken == 3 * MAX_BATCH
    for _ in range(3 * MAX_BATCH):
        next(stream)
    assert taken <= 6 * MAX_BATCH
    stream.close()  # type: ignore[attr-defined]


def test_a_stream_with_targets_of_its_own_needs_one_for_each(client: Client) -> None:
    images = random_pixels(3)
    stream = client.explain_stream(images, targets=[[0], [1]])
    with pytest.raises(InputError, match="targets for 2 images, but there are more"):
        list(stream)


def test_the_async_twins(client: Client) -> None:
    images = random_pixels(5)

    async def both() -> tuple[list[Prediction], list[Explained], list[Explained | Failure]]:
        return await asyncio.gather(
            client.apredict(images, top_k=2),
            client.aexplain(images, targets="fox"),
            client.aexplain([images[0], b"damaged"], on_error="return"),
        )

    predicted, explained, mixed = asyncio.run(both())
    assert [one.classes[0].index for one in predicted] == [one.classes[0].index for one in client.predict(images)]
    for one, other in zip(explained, client.explain(images, targets="fox"), strict=True):
        np.testing.assert_allclose(one.explanations[0].contributions, other.explanations[0].contributions, atol=1e-6)
    assert isinstance(mixed[1], Failure)
    with pytest.raises(UnreadableImageError):
        asyncio.run(client.apredict(b"damaged"))


def test_one_bad_image_does_not_lose_the_others(client: Client, tmp_path: Path) -> None:
    good = random_pixels(6)
    images: list[Any] = [good[0], "missing.png", good[1], good[2], np.zeros((3, *SIZE), np.float32), *good[3:]]
    with pytest.raises(ImagesFailedError, match="2 of 8 images failed") as caught:
        client.explain(images)
    results = caught.value.results
    assert caught.value.exit_code == 5
    assert [type(result) for result in results] == [Explained, Failure] + [Explained] * 2 + [Failure] + [Explained] * 3
    assert [result.code for result in results if isinstance(result, Failure)] == ["image_unreadable", "input_invalid"]
    alone = client.explain(good)
    for result, place in zip(alone, (0, 2, 3, 5, 6, 7), strict=True):
        np.testing.assert_allclose(
            results[place].explanations[0].contributions, result.explanations[0].contributions, rtol=1e-4, atol=1e-7
        )
    assert client.explain(images, on_error="return") == results
    assert isinstance(pickle.loads(pickle.dumps(caught.value)).results[1], Failure)


def test_a_lone_image_raises_its_own_error(client: Client) -> None:
    with pytest.raises(UnreadableImageError):
        client.predict("missing.png")
    with pytest.raises(UnknownTargetError):
        client.explain(random_pixels(1)[0], targets="nobody")
    assert isinstance(client.predict("missing.png", on_error="return")[0], Failure)


def test_arrays_of_images_are_collections(client: Client) -> None:
    images = random_pixels(3)
    assert client.predict(np.stack(images)) == client.predict(images)
    assert len(client.predict(np.stack([encode(cropped(image)) for image in images]))) == 3


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
        (lambda client: client.explain([], targets=b"fox"), "no list of targets"),
        (lambda client: client.explain([], targets={1, 2}), "no list of targets"),
        (lambda client: client.explain([], targets={"fox": 1}), "no list of targets"),
    ],
)
def test_wrong_arguments_are_refused_at_once(client: Client, call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(client)


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
    with pytest.raises(InputError, match=message):
        Client(small_bundle().path, **options)


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        Client(small_bundle().path, "cpu")  # type: ignore[call-arg]


def test_smaller_batches_and_one_thread_give_the_same(client: Client) -> None:
    images = random_pixels(5)
    with Client(small_bundle().path, device="cpu", max_batch=2, threads=1) as other:
        for one, two in zip(other.explain(images, top_k=3), client.explain(images, top_k=3), strict=True):
            for left, right in zip(one.explanations, two.explanations, strict=True):
                assert left.target.index == right.target.index
                np.testing.assert_allclose(left.contributions, right.contributions, rtol=1e-4, atol=1e-7)


def test_found_by_name_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BundleError, match=r"no exported model is called 'net'(.|\n)*bcos-sdk export net"):
        Client("net")
    copy_of(small_bundle(), tmp_path / "store" / "net")
    with Client("net", device="cpu") as client:
        assert client.manifest.model.name == "small"
    with pytest.raises(BundleError, match="The store has net"):
        Client("nett")
    with pytest.raises(BundleError, match="not a usable bundle"):
        Client(tmp_path / "elsewhere" / "net")
    (tmp_path / "net").mkdir()
    Client("net", device="cpu").close()
    (tmp_path / "net").rmdir()
    copy_of(small_bundle("softmax"), tmp_path / "net")
    with Client("net", device="cpu") as here:
        assert here.manifest.probability == "softmax", "a bundle here comes before one in the store"


@pytest.mark.parametrize("device", ["graphics", "cuda:x", "cpu:1", ""])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(DeviceError, match="there is no device"):
        Client(small_bundle().path, device=device)


def test_a_closed_client_refuses(photograph: Path) -> None:
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


def test_a_deadline_fails_what_is_not_done(client: Client) -> None:
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


class Nameless(io.BytesIO):
    @property
    def name(self) -> str:
        raise OSError("no name")


class OddPath:
    def __fspath__(self) -> bytes:
        return b"\xff.png"


def test_sources_that_cannot_say_their_name_lose_nothing(client: Client, photograph: Path) -> None:
    images: list[Any] = [photograph, Nameless(photograph.read_bytes()), OddPath(), Nameless(b"x")]
    good, nameless, odd, bad = client.explain(images, on_error="return")
    assert isinstance(good, Explained)
    assert isinstance(nameless, Explained)
    assert nameless.source == "image 1"
    assert isinstance(odd, Failure)
    assert isinstance(bad, Failure)
    for one in (good, nameless, odd, bad):
        assert type(one).from_json(one.to_json()) == one


def test_every_failure_says_where_and_what_to_do(client: Client) -> None:
    images: list[Any] = [b"", "missing.png", 3, np.zeros((2, 2), np.float32), Image.new("F", (40, 40))]
    for place, failure in enumerate(client.explain(images, on_error="return")):
        assert isinstance(failure, Failure)
        assert failure.hint, images[place]
        assert failure.source == ("missing.png" if place == 1 else f"image {place} ({type(images[place]).__name__})")


def test_warming_up_keeps_to_no_limit_on_lists() -> None:
    with Client(small_bundle().path, device="cpu", limits=Limits(images=1)) as client:
        client.warmup()


def test_lists_are_bounded(tmp_path: Path) -> None:
    with Client(small_bundle().path, device="cpu", limits=Limits(images=3)) as client:
        client.predict(random_pixels(3))
        with pytest.raises(ImageTooLargeError, match=r"more than 3 images(.|\n)*predict_stream"):
            client.predict(random_pixels(4))
        assert len(list(client.predict_stream(random_pixels(9)))) == 9


def test_a_client_travels_by_its_options() -> None:
    (pixels,) = random_pixels(1)
    with Client(small_bundle().path, device="cpu", max_batch=2, limits=Limits(queue=7)) as client:
        again = pickle.loads(pickle.dumps(client))
        with again:
            assert repr(again) == repr(client)
            assert again._limits.queue == 7
            assert again.predict(pixels) == client.predict(pixels)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(predict_with, client, pixels).result() == client.predict([pixels])


def test_a_client_finds_its_bundle_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_of(small_bundle(), tmp_path / "net")
    monkeypatch.chdir(tmp_path)
    with Client("net", device="cpu") as client:
        text = pickle.dumps(client)
    monkeypatch.chdir("/")
    pickle.loads(text).close()


def test_time_that_is_up_is_a_failure_and_no_wrong_argument(client: Client) -> None:
    """A service subtracts what it has spent from its budget."""
    for timeout in (0, -3.5, 1e-9):
        (failure,) = client.predict(random_pixels(1), timeout=timeout, on_error="return")
        assert isinstance(failure, Failure)
        assert failure.code == "deadline_exceeded"
    with pytest.raises(DeadlineError) as caught:
        client.predict(random_pixels(1)[0], timeout=0)
    assert caught.value.source == "image 0 (ndarray)"
    for timeout in (float("inf"), 1e12, np.float32(60)):
        assert len(client.predict(random_pixels(1), timeout=timeout)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_client_says_so_instead_of_hanging(client: Client) -> None:
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
