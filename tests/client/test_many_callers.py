"""Many threads share one client and get the results of a single caller."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.bundles import MAX_BATCH, random_pixels, small_bundle
from support.slow import PIXELS

from bcos_sdk import Client, Explained, Failure, Limits, Prediction
from bcos_sdk.errors import ClientClosedError

THREADS, CALLS = 32, 200


def mixed_call(seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Images of several sizes and forms, some of them unreadable, with all kinds of targets."""
    choose = random.Random(seed)
    pool: list[Any] = [
        *PIXELS,
        b"damaged",
        "missing.png",
        PIXELS[0].astype(np.float32),
        random_pixels(1, 1, (64, 50))[0],
    ]
    images = [choose.choice(pool) for _ in range(choose.randint(1, 4))]
    options: dict[str, Any] = choose.choice(
        [
            {},
            {"top_k": 2},
            {"targets": 3},
            {"targets": ["fox", "lynx vs mean"]},
            {"targets": [[index % 7] * (1 + index % 2) for index in range(len(images))]},
            {"targets": "tabby", "weights": True},
        ]
    )
    return images, options


def same(one: Any, other: Any) -> None:
    """Compare up to rounding: results depend in the last digits on the images in the same batch."""
    assert type(one) is type(other)
    if isinstance(one, Failure):
        assert one == other
    elif isinstance(one, Prediction):
        for left, right in zip(one.classes, other.classes, strict=True):
            assert left.index == right.index
            assert left.logit == pytest.approx(right.logit, rel=1e-4, abs=1e-5)
    else:
        assert isinstance(one, Explained)
        same(one.prediction, other.prediction)
        for mine, theirs in zip(one.explanations, other.explanations, strict=True):
            assert mine.target.label == theirs.target.label
            assert mine.arrays.keys() == theirs.arrays.keys()
            np.testing.assert_array_equal(mine.image, theirs.image)
            np.testing.assert_allclose(mine.contributions, theirs.contributions, rtol=1e-3, atol=1e-6)


def test_32_threads_with_200_mixed_calls_each() -> None:
    with Client(small_bundle().path, device="cpu", limits=Limits(queue=4 * THREADS * MAX_BATCH)) as client:
        calls = [mixed_call(seed) for seed in range(50)]
        expected = [
            (client.predict(images, on_error="return"), client.explain(images, on_error="return", **options))
            for images, options in calls
        ]

        def work(thread: int) -> int:
            choose = random.Random(thread)
            for _ in range(CALLS):
                number = choose.randrange(len(calls))
                images, options = calls[number]
                if choose.random() < 0.5:
                    got: list[Any] = client.predict(images, on_error="return")
                    wanted: list[Any] = expected[number][0]
                else:
                    got, wanted = client.explain(images, on_error="return", **options), expected[number][1]
                assert len(got) == len(wanted)
                for one, other in zip(got, wanted, strict=True):
                    same(one, other)
            return CALLS

        with ThreadPoolExecutor(THREADS) as pool:
            assert sum(pool.map(work, range(THREADS), timeout=300)) == THREADS * CALLS


def test_a_client_can_be_closed_while_threads_use_it() -> None:
    client = Client(small_bundle().path, device="cpu")
    answers: list[str] = []

    def work(thread: int) -> None:
        while True:
            try:
                results = client.predict([PIXELS[thread % 12]] * 3, on_error="return")
            except ClientClosedError:
                return
            answers.extend("ok" if isinstance(one, Prediction) else one.code for one in results)

    with ThreadPoolExecutor(THREADS) as pool:
        threads = [pool.submit(work, thread) for thread in range(THREADS)]
        time.sleep(0.5)
        client.close()
        for thread in threads:
            thread.result(30)
    assert set(answers) <= {"ok", "client_closed"}
    assert answers.count("ok") > THREADS
