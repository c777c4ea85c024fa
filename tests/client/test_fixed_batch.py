"""`fixed_batch`: every batch is full, so that a result does not depend on the images that run with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.bundles import MAX_BATCH, random_pixels, small_bundle

from bcos_sdk import Client
from bcos_sdk.backends import GraphBackend
from bcos_sdk.errors import InputError


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shape of the targets of each batch that reaches the graph."""
    found: list[tuple[int, ...]] = []
    start = GraphBackend.start_explain

    def recorded(self: GraphBackend, images: Any, targets: Any, *, weights: bool) -> Any:
        found.append(targets.shape)
        assert len(images) == len(targets)
        return start(self, images, targets, weights=weights)

    monkeypatch.setattr(GraphBackend, "start_explain", recorded)
    return found


def test_every_batch_is_full(shapes: list[tuple[int, ...]]) -> None:
    images = random_pixels(MAX_BATCH + 1)
    with Client(small_bundle().path, device="cpu", fixed_batch=True) as client:
        client.warmup()
        shapes.clear()
        results = client.explain([*images[:2], b"no image", *images[2:]], on_error="return")
        assert len(results) == MAX_BATCH + 2
        assert client.explain(images, top_k=3, on_error="return")
    assert [shape for shape in shapes if shape[1] == 1] == [(MAX_BATCH, 1)] * 2
    assert {shape for shape in shapes if shape[1] == 3} == {(1, 3)}


@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_results_do_not_depend_on_the_other_images(device: str) -> None:
    images = random_pixels(2 * MAX_BATCH + 1, seed=4)
    with Client(small_bundle().path, device=device, fixed_batch=True) as client:
        together = client.explain(images)
        backwards = client.explain(images[::-1])[::-1]
        for place, image in enumerate(images):
            (alone,) = client.explain([image])
            for other in (together[place], backwards[place]):
                assert other.explanations[0].contributions.tobytes() == alone.explanations[0].contributions.tobytes()
                assert other.explanations[0].bias == alone.explanations[0].bias
                assert other.explanations[0].completeness == alone.explanations[0].completeness
                assert other.prediction.classes == alone.prediction.classes


def test_predictions_and_contrasts_are_those_of_other_batches() -> None:
    images = random_pixels(3, seed=5)
    with (
        Client(small_bundle().path, device="cpu") as plain,
        Client(small_bundle().path, device="cpu", fixed_batch=True) as fixed,
    ):
        for ours, theirs in zip(fixed.predict(images), plain.predict(images), strict=True):
            assert [one.index for one in ours.classes] == [one.index for one in theirs.classes]
            np.testing.assert_allclose([one.logit for one in ours.classes], [one.logit for one in theirs.classes], 1e-5)
        targets = ["lynx", "fox vs lynx", "mean"]
        for one, other in zip(
            fixed.explain(images, targets=targets), plain.explain(images, targets=targets), strict=True
        ):
            for mine, reference in zip(one.explanations, other.explanations, strict=True):
                np.testing.assert_allclose(mine.contributions, reference.contributions, atol=1e-5)
                assert mine.completeness.passed


def test_the_argument_is_checked() -> None:
    with pytest.raises(InputError, match="fixed_batch is 1, expected bool"):
        Client(small_bundle().path, fixed_batch=1)  # type: ignore[arg-type]
