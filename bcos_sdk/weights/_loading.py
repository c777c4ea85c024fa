"""Load weights into a network: by registry name, or from a checkpoint. An error lists the keys that differ."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.errors import CheckpointError, WeightsMismatchError
from bcos_sdk.models import build_model
from bcos_sdk.registry import ModelSpec, builtin_registry
from bcos_sdk.weights._candidates import Candidate, averaged_elsewhere, find_candidates
from bcos_sdk.weights._checkpoint import read_checkpoint
from bcos_sdk.weights._download import download_weights, packaged_weights

__all__ = ["load_model", "load_weights"]

_NAMES_SHOWN = 5

log = logging.getLogger(__name__)


def load_model(model: str | ModelSpec, *, weights: Path | str | None = None, prefer_ema: bool = True) -> nn.Module:
    """Return the network with its weights, in eval mode: those of the file, else the built-in or published ones.

    Published weights are downloaded once and kept in the cache. If a training checkpoint has an averaged copy (EMA),
    that copy is loaded, unless `prefer_ema` is false.
    """
    spec = builtin_registry().find(model) if isinstance(model, str) else model
    network = build_model(spec)
    if weights is None and spec.packaged is not None:
        weights = packaged_weights(spec.packaged)
    path = download_weights(spec) if weights is None else Path(weights)
    load_weights(network, path, name=spec.name, prefer_ema=prefer_ema)
    return network


def load_weights(network: nn.Module, path: Path | str, *, name: str, prefer_ema: bool = True) -> None:
    """Load a file into the network. The keys and shapes must be exactly those of the network, else an error is raised.

    The weights may be the whole file or a part of a training checkpoint, under any prefix (`model.`, `module.`,
    `ema.module.`, …). The log says which copy was loaded.
    """
    source = str(path)
    checkpoint = read_checkpoint(path)
    candidates = find_candidates(checkpoint, network.state_dict())
    if not candidates:
        raise CheckpointError(
            f"{source} contains no tensors", source=source, hint="Pass a file with the state dict of a model."
        )
    complete = [candidate for candidate in candidates if candidate.complete]
    if not complete:
        nearest = max(candidates, key=lambda candidate: (candidate.found, len(candidate.tensors)))
        raise _mismatch(source, name, checkpoint, nearest)
    best = max(complete, key=lambda candidate: candidate.averaged == prefer_ema)
    _fill(network, best, source)
    log.info("%s: loaded the weights at %s", source, best.place)
    if prefer_ema and not best.averaged and (average := averaged_elsewhere(checkpoint, best)):
        log.warning(
            "%s: loaded the weights at %s, which are not averaged: the average that contains '%s' is incomplete",
            source,
            best.place,
            average,
        )
    if best.averaged and not prefer_ema:
        log.warning("%s: loaded the averaged weights at %s: no other copy is complete", source, best.place)


def _fill(network: nn.Module, copy: Candidate, source: str) -> None:
    """Load the copy. All checks come first, so that an error leaves the network unchanged."""
    key = ""
    try:
        for key, like in network.state_dict().items():
            if not copy.tensors[key].to(like.dtype).isfinite().all():
                raise CheckpointError(
                    f"{source} contains weights that are not finite, first in {copy.where}{key}",
                    source=source,
                    hint="The training run may have diverged. Use an earlier checkpoint.",
                )
        network.load_state_dict(copy.tensors, strict=True)
    except RuntimeError as error:
        raise CheckpointError(
            f"{source} contains a tensor that cannot be copied: {copy.where}{key}",
            source=source,
            hint="Save the weights as dense tensors. Sparse, quantised and meta tensors are not supported.",
        ) from error


def _models_that_fit(checkpoint: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the registry models whose weights the checkpoint contains."""
    return tuple(
        name
        for name, spec in builtin_registry().items()
        if any(candidate.complete for candidate in find_candidates(checkpoint, _state_of(spec)))
    )


@cache
def _state_of(spec: ModelSpec) -> Mapping[str, Tensor]:
    with torch.device("meta"):
        return build_model(spec).state_dict()


def _mismatch(source: str, name: str, checkpoint: Mapping[str, Any], nearest: Candidate) -> WeightsMismatchError:
    lines = [f"{source} does not contain the weights of {name}"]
    for title, keys in [
        ("missing", nearest.missing),
        ("unexpected", nearest.unexpected),
        ("wrong shape or type", nearest.misshapen),
    ]:
        if keys:
            lines.append(f"  {title} ({len(keys)}): {_shortened(keys)}")
    fits = _models_that_fit(checkpoint)
    hint = f"The weights fit {_shortened(fits)}." if fits else "The weights fit no model of the registry."
    return WeightsMismatchError(
        "\n".join(lines),
        source=source,
        hint=hint,
        missing=nearest.missing,
        unexpected=nearest.unexpected,
        misshapen=nearest.misshapen,
        fits=fits,
    )


def _shortened(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
