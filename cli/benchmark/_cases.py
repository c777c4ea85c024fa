"""The cases that are timed: our backend and client, the conventional network, the reference package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import open_backend
from bcos_sdk.cli.benchmark._measurements import TORCH, Comparison
from bcos_sdk.cli.benchmark._subject import Subject, sample_images, sample_pixels, top_targets
from bcos_sdk.cli.benchmark._timing import Case
from bcos_sdk.client import Client
from bcos_sdk.images import encode
from bcos_sdk.pictures import rgba, to_picture

__all__ = ["conventional_cases", "our_cases", "reason_not_compared", "reference_cases", "torch_cases"]

_MANY_CLASSES = 5


def our_cases(subject: Subject, device: str, threads: int, batches: Sequence[int], stack: ExitStack) -> Iterator[Case]:
    """Yield the cases of the backend and of the client, on arrays in memory. `stack` closes both."""
    manifest = subject.bundle.manifest
    backend = stack.enter_context(closing(open_backend(subject.bundle, device, threads=threads)))
    client = stack.enter_context(Client(subject.bundle.path, device=device, threads=threads, max_batch=max(batches)))
    for batch in batches:
        pixels = sample_pixels(batch, manifest.input.size)
        images = pixels if backend.takes_pixels else np.stack([encode(one) for one in pixels])
        explain = partial(backend.explain, images, top_targets(batch), weights=False)
        yield Case("ours", "forward", device, batch, partial(backend.predict, images))
        yield Case("ours", "explain", device, batch, explain)
        yield Case("ours", "client explain", device, batch, partial(client.explain, list(images)))
        if batch == 1:
            yield Case("ours", "explain with picture", device, 1, partial(_with_picture, client, images))
        if batch == 1 and manifest.ranks >= _MANY_CLASSES:
            top = partial(backend.explain, images, top_targets(1, _MANY_CLASSES), weights=False)
            yield Case("ours", "explain top 5", device, 1, top)


def _with_picture(client: Client, images: npt.NDArray[Any]) -> Any:
    """The picture that the reference draws: of the size of the input, however small."""
    (explained,) = client.explain(list(images), weights=True)
    explanation = explained.explanations[0]
    return to_picture(rgba(explanation.weights, explanation.contributions))


def conventional_cases(
    subject: Subject, devices: Sequence[str], threads: int, batches: Sequence[int], folder: Path
) -> Iterator[Case]:
    """Yield the forward pass of the conventional network in ONNX Runtime on the CPU, and on each other device."""
    from bcos_sdk.cli.benchmark._conventional import build_conventional, export_conventional, open_conventional

    assert subject.spec is not None
    size = subject.bundle.manifest.input.size
    path = folder / "conventional.onnx"
    export_conventional(build_conventional(subject.spec, size), size, path)
    for device in dict.fromkeys(["cpu", *devices]):
        forward = open_conventional(path, device, threads, subject.bundle.manifest.classes, size, max(batches))
        for batch in batches:
            images = np.ascontiguousarray(sample_images(batch, size)[:, :3])
            yield Case("conventional", "forward", device, batch, partial(forward, images))


def reference_cases(subject: Subject, batches: Sequence[int]) -> Iterator[Case]:
    """Yield the reference package in torch: forward, explanations of a batch, and its `explain()` of one image."""
    import torch

    from bcos_sdk.cli.benchmark import _reference as reference
    from bcos_sdk.models import calibrate

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
        yield Case("reference", "forward", TORCH, batch, forward)
        yield Case("reference", "explain", TORCH, batch, explain)
        if batch == 1:
            picture = reference.explain_with_picture(network, images)
            yield Case("reference", "explain with picture", TORCH, 1, picture)


def torch_cases(
    subject: Subject, side: Literal["torch", "compiled"], devices: Sequence[str], batches: Sequence[int]
) -> Iterator[Case]:
    """Yield our network in torch, on the GPU if one of the devices is on one: forward and explanations by autograd."""
    from bcos_sdk.cli.benchmark._torch_network import TorchNetwork, torch_place

    assert subject.spec is not None
    assert subject.state is not None
    place = torch_place(devices)
    network = TorchNetwork(subject.spec, subject.state, place, compiled=side == "compiled")
    name = TORCH if place == "cpu" else f"{TORCH} {place}"
    for batch in batches:
        images = sample_images(batch, subject.bundle.manifest.input.size)
        yield Case(side, "forward", name, batch, partial(network.predict, images))
        yield Case(side, "explain", name, batch, partial(network.explain, images))


def reason_not_compared(subject: Subject, comparison: Comparison, devices: Sequence[str] = ()) -> str | None:
    """Return why the model cannot be compared, as a note for the report; None if it can."""
    if subject.spec is None:
        return f"no comparison ({comparison}): the registry has no model {subject.name!r}"
    if comparison in ("torch", "compiled"):
        return _reason_not_in_torch(subject, comparison, devices)
    if comparison == "reference":
        from bcos_sdk.cli.benchmark._reference import has_reference

        known, reason = has_reference(subject.spec.name), "the reference package has no entry point"
    else:
        from bcos_sdk.cli.benchmark._conventional import has_conventional

        known = has_conventional(subject.spec, subject.bundle.manifest.input.size)
        reason = "torchvision has no network"
    if not known:
        return f"no comparison ({comparison}): {reason} for {subject.spec.name}"
    registered, exported = subject.spec.architecture.classes, subject.bundle.manifest.classes
    if registered != exported:
        return (
            f"no comparison ({comparison}): {subject.spec.name} has {registered} classes in the registry, "
            f"but the bundle has {exported}"
        )
    return None


def _reason_not_in_torch(subject: Subject, comparison: Comparison, devices: Sequence[str]) -> str | None:
    import torch

    from bcos_sdk.cli.benchmark._torch_network import torch_place

    if subject.state is None:
        return f"no comparison ({comparison}): only a registry model has weights in torch, not a bundle"
    if torch_place(devices) != "cpu" and not torch.cuda.is_available():
        return f"no comparison ({comparison}): this torch {torch.__version__} finds no GPU"
    return None
