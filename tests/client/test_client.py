"""The client with ONNX Runtime, compared with autograd in float64."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bundles import LABELS, MAX_BATCH, SIZE, cropped, explain_by_autograd, random_pixels, small_bundle
from support.export_extra import torch
from support.same_results import same

from bcos_sdk import Client, Contrast, Explained, Failure, Prediction
from bcos_sdk.errors import ImagesFailedError, InputError, UnknownTargetError, UnreadableImageError
from bcos_sdk.images import encode


def unit(index: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(index), len(LABELS)).double()


def check(explained: Explained, pixels: Any, *, coefficients: list[torch.Tensor]) -> None:
    """Compare W(x), contributions and bias of each explanation with autograd."""
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


def test_all_forms_of_an_image_give_the_same_explanation(photograph: Path, tmp_path: Path) -> None:
    picture = Image.open(photograph).copy()
    array, contents = np.asarray(picture), photograph.read_bytes()
    with Client(str(small_bundle().path), device="auto") as client:
        results = client.explain([str(photograph), picture, array, contents], top_k=2)
        for result in results:
            best = result.prediction.classes[0]
            assert best.label in LABELS
            assert best.probability is not None
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
def test_explanations_equal_autograd_at_every_batch_size(client: Client, count: int) -> None:
    images = random_pixels(count, seed=count)
    results = client.explain(images, weights=True)
    assert len(results) == count
    for result, pixels in zip(results, images, strict=True):
        best = result.prediction.classes[0].index
        assert result.explanations[0].target.index == best
        check(result, pixels, coefficients=[unit(best)])


def test_predictions_equal_autograd(client: Client) -> None:
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


def test_each_image_can_have_its_own_targets(client: Client) -> None:
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


def test_the_difference_of_two_explanations_equals_their_contrast(client: Client) -> None:
    (pixels,) = random_pixels(1, seed=7)
    targets: Any = [0, 1, "mean", Contrast(0, 1), Contrast(0)]
    one, two, mean, contrast, corrected = client.explain(pixels, targets=targets, weights=True)[0].explanations
    assert one - two == contrast
    assert one - mean == corrected


def test_weights_are_returned_on_request_only(client: Client) -> None:
    (pixels,) = random_pixels(1)
    assert set(client.explain(pixels)[0].explanations[0].arrays) == {"contributions", "image"}
    assert set(client.explain(pixels, weights=True)[0].explanations[0].arrays) == {"contributions", "image", "weights"}


def test_results_do_not_share_memory(client: Client) -> None:
    one, two = (result.explanations[0] for result in client.explain(random_pixels(2)))
    assert one.contributions.base is None or not np.shares_memory(one.contributions, two.contributions)


def test_the_manifest_selects_softmax() -> None:
    images = random_pixels(3)
    with Client(small_bundle("softmax").path, device="cpu") as client:
        for prediction in client.predict(images, top_k=7):
            logits = np.array([score.logit for score in prediction.classes])
            expected = torch.softmax(torch.from_numpy(logits), 0)
            probabilities = np.array([score.probability for score in prediction.classes], float)
            np.testing.assert_allclose(probabilities, expected, rtol=1e-6)


def test_a_model_without_labels_has_indices_as_labels(client: Client) -> None:
    assert client.labels == LABELS
    with Client(small_bundle(labels=False).path, device="cpu") as unnamed:
        assert unnamed.labels == tuple("0123456")
        assert unnamed.predict(random_pixels(1))[0].classes[0].label in unnamed.labels


def test_streams_and_lists_give_equal_results(client: Client) -> None:
    images: list[Any] = random_pixels(11)
    images[4] = b"damaged"
    listed = client.explain(images, top_k=2, on_error="return")
    for streamed, expected in (
        (client.explain_stream(iter(images), top_k=2), listed),
        (client.predict_stream(iter(images)), client.predict(images, on_error="return")),
    ):
        for one, other in zip(streamed, expected, strict=True):
            same(one, other)  # servers merge requests that arrive together
            assert client.device != "cpu" or one == other
    assert isinstance(listed[4], Failure)
    assert list(client.predict_stream([])) == []
    assert client.predict([]) == []


def test_a_stream_reads_only_a_few_batches_ahead(client: Client) -> None:
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


def test_a_stream_with_a_list_per_image_needs_one_list_for_each_image(client: Client) -> None:
    images = random_pixels(3)
    stream = client.explain_stream(images, targets=[[0], [1]])
    with pytest.raises(InputError, match="targets for 2 images, but more images"):
        list(stream)


def test_async_calls_and_sync_calls_give_equal_results(client: Client) -> None:
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


def test_a_bad_image_does_not_affect_the_others(client: Client, tmp_path: Path) -> None:
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


def test_a_single_image_raises_its_own_error(client: Client) -> None:
    with pytest.raises(UnreadableImageError):
        client.predict("missing.png")
    with pytest.raises(UnknownTargetError):
        client.explain(random_pixels(1)[0], targets="nobody")
    assert isinstance(client.predict("missing.png", on_error="return")[0], Failure)


def test_smaller_batches_and_one_thread_give_equal_results(client: Client) -> None:
    images = random_pixels(5)
    with Client(small_bundle().path, device="cpu", max_batch=2, threads=1) as other:
        for one, two in zip(other.explain(images, top_k=3), client.explain(images, top_k=3), strict=True):
            for left, right in zip(one.explanations, two.explanations, strict=True):
                assert left.target.index == right.target.index
                np.testing.assert_allclose(left.contributions, right.contributions, rtol=1e-4, atol=1e-7)
