"""Calls with tensors take the channels that the network has."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from support.bundles import LABELS, SIZE, small_bundle
from support.slow import SlowBackend

from bcos_sdk import Limits
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._processor import ImageProcessor
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError


@pytest.mark.parametrize(
    ("spec", "value", "wrong"),
    [
        (InputSpec.exact(SIZE, "grey"), 0.5, 1.5),
        (InputSpec.exact(SIZE, "rgb"), 1.0, -0.1),
        (InputSpec.exact(SIZE), 0.0, float("nan")),
        (InputSpec.arrays(5, SIZE), -40.0, float("inf")),
    ],
    ids=["grey", "rgb", "rgb+complement", "none"],
)
def test_images_have_the_channels_and_the_range_of_the_network(
    slow: SlowBackend, spec: InputSpec, value: float, wrong: float
) -> None:
    manifest = small_bundle().manifest.model_copy(update={"input": spec})
    backend: Any = slow
    processor = ImageProcessor(manifest, backend, max_batch=4, on_incomplete="raise", limits=Limits())
    slow.go.set()

    def predict(images: Any) -> Any:
        async def call() -> Any:
            return await processor.tensors.predict(images, Deadline(20))

        return asyncio.run(call())

    assert predict(np.full((2, *spec.shape), value, np.float32)).shape == (2, len(LABELS))
    with pytest.raises(InputError, match="has values from"):
        predict(np.full((1, *spec.shape), wrong, np.float32))
    with pytest.raises(InputError, match=rf"expected float32 \[images, {spec.depth}, 20, 28\]"):
        predict(np.zeros((1, spec.depth + 1, *SIZE), np.float32))
    processor.close(Deadline(5))
