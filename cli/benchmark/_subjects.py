"""Which model is measured: one of the registry, exported for the occasion, or a bundle that is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcos_sdk.bundle import Bundle, find_bundle, has_manifest, open_bundle, stored_bundles
from bcos_sdk.errors import InputError
from bcos_sdk.registry import ModelSpec, builtin_registry

__all__ = ["Subject", "check_subject", "prepare_subject"]


@dataclass(frozen=True)
class Subject:
    """A bundle, and what is known of the network that it was made from."""

    name: str
    bundle: Bundle
    spec: ModelSpec | None
    export_seconds: float | None = None
    state: dict[str, Any] | None = None
    """The weights, if they were made here."""


def check_subject(model: str, largest_batch: int) -> Bundle | None:
    """Promise that there is such a model: its bundle, or None if it is one of the registry to be exported."""
    bundle = _existing(model)
    if bundle is None:
        builtin_registry().find(model)
    elif largest_batch > bundle.manifest.max_batch:
        raise InputError(
            f"{model} was exported for batches of at most {bundle.manifest.max_batch}, not of {largest_batch}",
            source=model,
            hint="Measure smaller batches, or export it with a larger --max-batch.",
        )
    return bundle


def _existing(model: str) -> Bundle | None:
    """A path is that of a bundle; a name of the registry is built, even if an export of that name is in the store."""
    if len(Path(model).parts) > 1 or has_manifest(Path(model)):
        return open_bundle(model)
    if model not in builtin_registry() and model in stored_bundles():
        return find_bundle(model)
    return None


def prepare_subject(model: str, folder: Path, largest_batch: int, progress: Callable[[str], None]) -> Subject:
    """The model as a bundle; one of the registry gets random weights and is exported to `folder`."""
    bundle = check_subject(model, largest_batch)
    if bundle is not None:
        name = bundle.manifest.model.name
        return Subject(name, bundle, builtin_registry().get(name))
    from bcos_sdk.cli.benchmark._random_weights import random_network
    from bcos_sdk.exporters import export

    spec = builtin_registry().find(model)
    progress("exporting with random weights")
    network = random_network(spec)
    began = time.perf_counter()
    bundle = export(
        network, folder, name=model, labels=spec.class_names, preprocessing=spec.input, max_batch=largest_batch
    )
    return Subject(model, bundle, spec, time.perf_counter() - began, network.state_dict())
