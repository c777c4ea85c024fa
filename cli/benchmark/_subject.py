"""The model to measure, as a bundle, and the arrays that it is measured with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import Bundle, find_bundle, has_manifest, is_name, stored_bundles
from bcos_sdk.contract import rank_target
from bcos_sdk.errors import InputError
from bcos_sdk.images import encode
from bcos_sdk.registry import ModelSpec, Registry, model_registry

__all__ = ["Subject", "check_subject", "prepare_subject", "sample_images", "sample_pixels", "top_targets"]


@dataclass(frozen=True)
class Subject:
    """A bundle, and the registry entry of its network if there is one."""

    name: str
    bundle: Bundle
    spec: ModelSpec | None
    export_seconds: float | None = None
    state: dict[str, Any] | None = None
    """The random weights, if the model was exported for this run."""


def check_subject(model: str, largest_batch: int, registry: Registry | None = None) -> Bundle | None:
    """Return the bundle of that path or stored name; None for a registry model, which must be exported first.

    Raises an error if there is no such model, or if the bundle does not take batches of that size.
    """
    registry = registry or model_registry()
    bundle = _existing_bundle(model, registry)
    if bundle is None:
        registry.find(model)
    elif largest_batch > bundle.manifest.max_batch:
        raise InputError(
            f"{model} was exported for batches of at most {bundle.manifest.max_batch}, got a batch of {largest_batch}",
            source=model,
            hint="Use a smaller --batch, or export the model with a larger --max-batch.",
        )
    return bundle


def _existing_bundle(model: str, registry: Registry) -> Bundle | None:
    """A path means a bundle. A registry name means the registry, even if the store has an export of that name."""
    if model in registry:
        return None
    named = is_name(model)
    return find_bundle(model) if not named or model in stored_bundles() or has_manifest(Path(model)) else None


def prepare_subject(
    model: str, folder: Path, largest_batch: int, progress: Callable[[str], None], registry: Registry | None = None
) -> Subject:
    """Return the model as a bundle. A registry model is exported to `folder` with random weights."""
    registry = registry or model_registry()
    bundle = check_subject(model, largest_batch, registry)
    if bundle is not None:
        name = bundle.manifest.model.name
        return Subject(name, bundle, registry.get(name))
    from bcos_sdk.exporters import export
    from bcos_sdk.models import random_network

    spec = registry.find(model)
    progress("exporting with random weights")
    network = random_network(spec)
    began = time.perf_counter()
    bundle = export(
        network, folder, name=model, labels=spec.class_names, preprocessing=spec.input, max_batch=largest_batch
    )
    return Subject(model, bundle, spec, time.perf_counter() - began, network.state_dict())


def sample_images(count: int, size: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Return `count` encoded images of random pixels, [count, 6, *size]."""
    return np.stack([encode(image) for image in sample_pixels(count, size)])


def sample_pixels(count: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Return `count` images of random pixels, [count, *size, 3]."""
    return np.random.default_rng(0).integers(0, 256, (count, *size, 3), dtype=np.uint8)


def top_targets(count: int, classes: int = 1) -> npt.NDArray[np.int64]:
    """Return the targets [count, classes] that stand for the most likely classes of each image."""
    return np.tile(np.array([rank_target(rank) for rank in range(1, classes + 1)]), (count, 1))
