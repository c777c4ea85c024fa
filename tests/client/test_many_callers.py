"""Many threads share one client and get the results of a single caller."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from support.bundles import MAX_BATCH, random_pixels, small_bundle
from support.same_results import same
from support.slow import PIXELS

from bcos_sdk import Client, Limits, Prediction
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
