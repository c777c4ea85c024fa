"""Load weights into a network: by registry name, or from a checkpoint. An error lists the keys that differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from bcos_sdk.registry import ModelSpec, model_registry
from bcos_sdk.weights._candidates import find_candidates
from bcos_sdk.weights._checkpoint import read_checkpoint
from bcos_sdk.weights._download import weights_file
from bcos_sdk.weights._fine_tuned import load_fine_tuned
from bcos_sdk.weights._fitting import at_key, choose, fill, mismatch, no_tensors

__all__ = ["load_model", "load_weights"]


def load_model(
    model: str | ModelSpec,
    *,
    weights: Path | str | None = None,
    classes: int | None = None,
    prefer_ema: bool = True,
    key: str | None = None,
) -> nn.Module:
    """Return the network with its weights, in eval mode: those of the file, else those that the registry names.

    Published weights are downloaded once and kept in the cache. If a training checkpoint has an averaged copy (EMA),
    that copy is loaded, unless `prefer_ema` is false. `classes` is for a fine-tuned model whose number of classes is
    not that of the registry. `load_fine_tuned` reads it from the file, and the labels too. `key` names the copy to load
    if the file has several that differ.
    """
    spec = model_registry().find(model) if isinstance(model, str) else model
    path = weights_file(spec) if weights is None else Path(weights)
    wanted = classes or (None if spec.classes_open else spec.architecture.classes)
    return load_fine_tuned(spec, path, classes=wanted, prefer_ema=prefer_ema, key=key).network


def load_weights(
    network: nn.Module,
    path: Path | str,
    *,
    name: str,
    prefer_ema: bool = True,
    key: str | None = None,
    checkpoint: Mapping[str, Any] | None = None,
) -> str:
    """Load a file into the network. The keys and shapes must be exactly those of the network, else an error is raised.

    The weights may be the whole file or a part of a training checkpoint, under any prefix (`model.`, `module.`,
    `ema.module.`, …). `key` names the copy to load if the file has several that differ. `checkpoint` is what
    `read_checkpoint` returned for the file, if it was read before. Returns where in the file the weights were; the log
    says it too.
    """
    source = str(path)
    checkpoint = read_checkpoint(path) if checkpoint is None else checkpoint
    candidates = find_candidates(checkpoint, network.state_dict())
    if not candidates:
        raise no_tensors(source)
    complete = [candidate for candidate in candidates if candidate.complete]
    if not complete:
        raise mismatch(source, name, checkpoint, candidates)
    taken = choose(at_key(complete, key, source), checkpoint, source, prefer_ema=prefer_ema, key=key)
    fill(network, taken, source)
    return taken.place
