"""A network filled from a checkpoint, or a clear word on why its weights are not there."""

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

__all__ = ["load_weights"]

_NAMES_SHOWN = 5

log = logging.getLogger(__name__)


def load_weights(network: nn.Module, path: Path | str, *, name: str, prefer_ema: bool = True) -> None:
    """Fill the network from a file: every key present, none left over, every shape equal, or an error.

    The weights may be the whole file or lie inside a training checkpoint, under any prefix
    (`model.`, `module.`, `ema.module.`, …). Which copy was taken is logged.
    """
    source = str(path)
    checkpoint = read_checkpoint(path)
    candidates = find_candidates(checkpoint, network.state_dict())
    if not candidates:
        raise CheckpointError(
            f"{source} holds no tensors", source=source, hint="Pass a file with a model's state dict."
        )
    complete = [candidate for candidate in candidates if candidate.complete]
    if not complete:
        nearest = max(candidates, key=lambda candidate: (candidate.found, len(candidate.tensors)))
        raise _mismatch(source, name, checkpoint, nearest)
    best = max(complete, key=lambda candidate: candidate.averaged == prefer_ema)
    _fill(network, best, source)
    log.info("%s: took the weights at %s", source, best.place)
    if prefer_ema and not best.averaged and (average := averaged_elsewhere(checkpoint, best)):
        log.warning(
            "%s: took the weights at %s, which are no average: the one around '%s' is not complete",
            source,
            best.place,
            average,
        )
    if best.averaged and not prefer_ema:
        log.warning("%s: took the average at %s: no other copy is complete", source, best.place)


def _fill(network: nn.Module, copy: Candidate, source: str) -> None:
    """Load the copy; everything is checked before, so that a refused one leaves the network as it was."""
    key = ""
    try:
        for key, like in network.state_dict().items():
            if not copy.tensors[key].to(like.dtype).isfinite().all():
                raise CheckpointError(
                    f"{source} holds weights that are no finite numbers, first in {copy.where}{key}",
                    source=source,
                    hint="The training run may have diverged: take an earlier checkpoint.",
                )
        network.load_state_dict(copy.tensors, strict=True)
    except RuntimeError as error:
        raise CheckpointError(
            f"{source} holds a tensor that cannot be copied: {copy.where}{key}",
            source=source,
            hint="Save its weights as plain dense tensors: sparse, quantised and meta tensors are not read.",
        ) from error


def _models_that_fit(checkpoint: Mapping[str, Any]) -> tuple[str, ...]:
    """The registry models whose weights the checkpoint does hold."""
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
    lines = [f"{source} does not hold the weights of {name}"]
    for title, keys in [
        ("missing", nearest.missing),
        ("unexpected", nearest.unexpected),
        ("wrong shape or type", nearest.misshapen),
    ]:
        if keys:
            lines.append(f"  {title} ({len(keys)}): {_shortened(keys)}")
    fits = _models_that_fit(checkpoint)
    hint = f"They fit: {_shortened(fits)}." if fits else "They fit no model of the registry."
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
