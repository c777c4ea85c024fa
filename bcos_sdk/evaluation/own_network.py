"""The network of a bundle in torch. It is the same only if the weights have the same hash and the logits agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bcos_sdk._extras import require
from bcos_sdk.contract import GraphPrecision
from bcos_sdk.errors import BcosError, InputError, UnknownModelError, WeightsMismatchError
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.images import encode
from bcos_sdk.registry import ModelSpec, model_registry

if TYPE_CHECKING:
    from torch import nn

__all__ = ["WeightsChoice", "open_own_network"]

_AGREEMENT: dict[GraphPrecision, float] = {"fp32": 2e-3, "fp16": 2e-2}
"""Largest error of the logits in the 2-norm, relative to them. GPUs may round products to TF32."""
_CONSTANTS = "Constants such as --logit-bias or --temperature of `bcos-sdk export` belong into a registry entry: "


@dataclass(frozen=True)
class WeightsChoice:
    """Where the weights of a bundle may be: in these files, and in the registry if it is asked."""

    files: tuple[Path, ...] = ()
    base: str | None = None
    """The registry model whose network it is; None: the one with the name of the bundle."""
    registry: bool = True

    def of_compared(self, model: str, compared: str) -> WeightsChoice:
        """Where the weights of a compared bundle may be: also in the registry, under its own name if it has another."""
        is_other = compared != model and compared in model_registry()
        return WeightsChoice(self.files, None if is_other else self.base)

    def spec(self, name: str) -> ModelSpec:
        """The registry model of a bundle with this name."""
        try:
            return model_registry().find(self.base or name)
        except UnknownModelError as error:
            hint = "Pass --base NAME with the registry model that was exported, and its file with --weights FILE."
            raise InputError(error.message, source=error.source, hint=error.hint if self.base else hint) from error


def open_own_network(subject: Subject, samples: Sequence[Sample], choice: WeightsChoice | None = None) -> nn.Module:
    """Load the network of the subject's bundle in eval mode.

    The hash of its weights must be that in the manifest. The logits of the first image that can be read must be those
    of the bundle, up to the rounding of its precision. Otherwise an `InputError` says what differs.
    """
    require("torch", "onnx", "onnxruntime", purpose="Opening the network of a bundle")
    from bcos_sdk.exporters import hash_of_weights

    choice = choice or WeightsChoice()
    manifest = subject.client.manifest
    spec = choice.spec(manifest.model.name)
    tried: list[str] = []
    for place, network in _candidates(spec, manifest.classes, choice, tried):
        if hash_of_weights(network) == manifest.model.weights_sha256:
            _check_logits(subject, samples, network, place)
            return network
        tried.append(f"{place} has other weights")
    raise InputError(
        f"the weights of the bundle {manifest.model.name} were not found: {'; '.join(dict.fromkeys(tried))}",
        source=manifest.model.name,
        hint="Pass the weights file from which the bundle was exported: --weights FILE.",
    )


def _candidates(
    spec: ModelSpec, classes: int, choice: WeightsChoice, tried: list[str]
) -> Iterator[tuple[str, nn.Module]]:
    """Where weights are, and the network with them. What does not fit goes into `tried`."""
    from bcos_sdk.weights import load_fine_tuned, load_model

    for file in choice.files:
        for prefer_ema in (True, False):
            try:
                tuned = load_fine_tuned(spec, file, classes=classes, prefer_ema=prefer_ema)
            except WeightsMismatchError as error:
                tried.append(f"{file} does not fit: {error.message}")
                break
            yield str(file), tuned.network
    if not choice.registry:
        return
    if classes == spec.architecture.classes or spec.classes_open:
        yield f"the registry's {spec.name}", load_model(spec)
    else:
        tried.append(f"the registry's {spec.name} has {spec.architecture.classes} classes instead of {classes}")


def _check_logits(subject: Subject, samples: Sequence[Sample], network: nn.Module, place: str) -> None:
    import torch

    client = subject.client
    encoded = encode(_first_readable(subject, samples))
    (prediction,) = client.predict(encoded, top_k=len(client.labels))
    found = np.array([one.logit for one in sorted(prediction.classes, key=lambda one: one.index)], np.float64)
    with torch.no_grad():
        wanted = network(torch.from_numpy(encoded)[None])[0].double().numpy()
    error = float(np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-12))
    most, name = _AGREEMENT[client.manifest.precision], client.manifest.model.name
    if error > most:
        raise InputError(
            f"{place} has the weights of the bundle {name}, but other logits: they differ by {error:.2g} of "
            f"their 2-norm, expected at most {most:g} for {client.manifest.precision}",
            source=name,
            hint=f"{_CONSTANTS}write one, name the file in BCOS_SDK_REGISTRY, and pass the entry's name with --base.",
        )


def _first_readable(subject: Subject, samples: Sequence[Sample]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    for sample in samples:
        with suppress(BcosError):
            return subject.pixels(sample)
    raise InputError(
        f"none of the {len(samples):,} images can be read, so the logits of bundle and network cannot be compared",
        hint="Pass images that can be decoded.",
    )
