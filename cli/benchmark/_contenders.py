"""What is timed: our engine and our client, the conventional network, the reference package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import open_backend
from bcos_sdk.cli.benchmark._race import Contender
from bcos_sdk.cli.benchmark._report import TORCH, Comparison
from bcos_sdk.cli.benchmark._samples import sample_images, top_targets
from bcos_sdk.cli.benchmark._subjects import Subject
from bcos_sdk.client import Client

__all__ = ["conventional_contenders", "our_contenders", "reference_contenders", "without_comparison"]

MANY = 5


def our_contenders(
    subject: Subject, device: str, threads: int, batches: Sequence[int], stack: ExitStack
) -> Iterator[Contender]:
    """The engine with ready arrays, and the client with the same; what `stack` holds is open until it ends."""
    manifest = subject.bundle.manifest
    backend = stack.enter_context(closing(open_backend(subject.bundle, device, threads=threads)))
    client = stack.enter_context(Client(subject.bundle.path, device=device, threads=threads, max_batch=max(batches)))
    for batch in batches:
        images = sample_images(batch, manifest.input.size)
        explain = partial(backend.explain, images, top_targets(batch), weights=False)
        yield Contender("ours", "forward", device, batch, partial(backend.predict, images))
        yield Contender("ours", "explain", device, batch, explain)
        yield Contender("ours", "client explain", device, batch, partial(client.explain, list(images)))
        if batch == 1:
            yield Contender("ours", "explain with picture", device, 1, partial(_with_picture, client, images))
        if batch == 1 and manifest.ranks >= MANY:
            top = partial(backend.explain, images, top_targets(1, MANY), weights=False)
            yield Contender("ours", "explain top 5", device, 1, top)


def _with_picture(client: Client, images: npt.NDArray[np.float32]) -> Any:
    (explained,) = client.explain(list(images), weights=True)
    return explained.explanations[0].rgba()


def conventional_contenders(
    subject: Subject, devices: Sequence[str], threads: int, batches: Sequence[int], folder: Path
) -> Iterator[Contender]:
    """The conventional network in ONNX Runtime, which sets the scale, and on each other device that runs it."""
    from bcos_sdk.cli.benchmark._conventional import build_conventional, export_conventional, open_conventional

    assert subject.spec is not None
    size = subject.bundle.manifest.input.size
    path = folder / "conventional.onnx"
    export_conventional(build_conventional(subject.spec, size), size, path)
    for device in dict.fromkeys(["cpu", *devices]):
        forward = open_conventional(path, device, threads, subject.bundle.manifest.classes)
        for batch in batches if forward is not None else ():
            images = np.ascontiguousarray(sample_images(batch, size)[:, :3])
            assert forward is not None
            yield Contender("conventional", "forward", device, batch, partial(forward, images))


def reference_contenders(subject: Subject, batches: Sequence[int]) -> Iterator[Contender]:
    """The reference in torch: forward, explanations in batches, and its own `explain()` of one image."""
    import torch

    from bcos_sdk.cli.benchmark import _reference as reference
    from bcos_sdk.cli.benchmark._random_weights import calibrate

    assert subject.spec is not None
    size = subject.bundle.manifest.input.size
    network = reference.build_reference(subject.spec.name)
    if subject.state is not None:
        network.load_state_dict(subject.state)
    else:
        calibrate(network, torch.from_numpy(sample_images(2, size)))
    for batch in batches:
        images = torch.from_numpy(sample_images(batch, size))
        forward = partial(reference.predict_in_batch, network, images)
        explain = partial(reference.explain_in_batch, network, images)
        yield Contender("reference", "forward", TORCH, batch, forward)
        yield Contender("reference", "explain", TORCH, batch, explain)
        if batch == 1:
            picture = reference.explain_with_picture(network, images)
            yield Contender("reference", "explain with picture", TORCH, 1, picture)


def without_comparison(subject: Subject, comparison: Comparison) -> str | None:
    """Why a model is not compared, as a note for the report; None if it can be."""
    if subject.spec is None:
        return f"not compared ({comparison}): the registry knows no model {subject.name!r}"
    if comparison == "reference":
        from bcos_sdk.cli.benchmark._reference import has_reference

        known, whose = has_reference(subject.spec.name), "the reference package has no entry point"
    else:
        from bcos_sdk.cli.benchmark._conventional import has_conventional

        known, whose = has_conventional(subject.spec, subject.bundle.manifest.input.size), "torchvision has no network"
    if not known:
        return f"not compared ({comparison}): {whose} for {subject.spec.name}"
    if subject.spec.architecture.classes != subject.bundle.manifest.classes:
        return f"not compared ({comparison}): {subject.spec.name} has another number of classes in the registry"
    return None
