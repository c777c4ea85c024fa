"""What the client adds to a bare session: `python benchmarks/client_overhead.py BUNDLE [--batch 8] [--rounds 10]`.

Both explain the same ready arrays, in turns, in one process; the ratio of the medians is what counts. A second pair
of columns starts from JPEG bytes, decoded and encoded one by one before the bare session runs.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
from PIL import Image

from bcos_sdk import Client, Limits
from bcos_sdk.bundle import open_bundle
from bcos_sdk.images import encode, load_image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()

    bundle = open_bundle(options.bundle)
    spec = bundle.manifest.input
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (options.batch, *spec.size, 3), dtype=np.uint8)
    arrays = [encode(image) for image in pixels]
    files = [_jpeg(generator) for _ in range(options.batch)]
    targets = np.full((options.batch, 1), -1)

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads or 0
    session = onnxruntime.InferenceSession(bundle.explain_graph, settings, providers=["CPUExecutionProvider"])
    outputs = ["logits", "classes", "contributions", "bias_terms"]

    def bare(batch: list[np.ndarray]) -> None:
        session.run(outputs, {"image": np.stack(batch), "targets": targets})

    with Client(options.bundle, device="cpu", threads=options.threads, max_batch=options.batch) as client:
        contenders: dict[str, Callable[[], object]] = {
            "bare session, ready arrays": lambda: bare(arrays),
            "client, ready arrays": lambda: client.explain(arrays),
            "bare session, JPEG bytes": lambda: bare([load_image(one, "", spec, Limits()).encoded for one in files]),
            "client, JPEG bytes": lambda: client.explain(files),
        }
        times = _interleaved(contenders, options.rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:<28} median {medians[name] * 1e3:8.1f} ms   least {min(values) * 1e3:8.1f} ms")
    for kind in ("ready arrays", "JPEG bytes"):
        print(f"client ÷ bare, {kind}: {medians[f'client, {kind}'] / medians[f'bare session, {kind}']:.3f}")


def _interleaved(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            began = time.perf_counter()
            contenders[name]()
            if number:  # the first round warms up
                times[name].append(time.perf_counter() - began)
    return times


def _jpeg(generator: np.random.Generator) -> bytes:
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((500, 375), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main()
