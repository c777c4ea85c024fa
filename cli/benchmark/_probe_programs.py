"""What is run in a process of its own to see how much memory it takes; the answer is one line of JSON."""

from __future__ import annotations

import json
import sys

from bcos_sdk._processes import peak_memory

__all__ = ["peak_of_ours", "peak_of_reference"]


def peak_of_ours(path: str, device: str, threads: int, batch: int) -> None:
    """The most memory that explaining a batch took, Python and libraries included."""
    from bcos_sdk.backends import open_backend
    from bcos_sdk.bundle import open_bundle
    from bcos_sdk.cli.benchmark._samples import sample_images, top_targets

    bundle = open_bundle(path)
    backend = open_backend(bundle, device, threads=threads)
    images = sample_images(batch, bundle.manifest.input.size)
    for _ in range(2):
        backend.explain(images, top_targets(batch), weights=False)
    _answer(peak_memory_mb=(peak_memory() or 0) / 1e6)


def peak_of_reference(name: str, size: tuple[int, int], threads: int, batch: int) -> None:
    """The same of the reference package; its weights are as random as they were built."""
    import torch

    from bcos_sdk.cli.benchmark._reference import build_reference, explain_in_batch
    from bcos_sdk.cli.benchmark._samples import sample_images

    torch.set_num_threads(threads)
    network = build_reference(name)
    images = torch.from_numpy(sample_images(batch, size))
    for _ in range(2):
        explain_in_batch(network, images)
    _answer(peak_memory_mb=(peak_memory() or 0) / 1e6)


def _answer(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
