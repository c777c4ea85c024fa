"""Load weights into a network: by registry name, or from a checkpoint. An error lists the keys that differ."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from bcos_sdk.registry import ModelSpec, model_registry
from bcos_sdk.weights._candidates import find_candidates
from bcos_sdk.weights._checkpoint import read_checkpoint
from bcos_sdk.weights._download import weights_file
from bcos_sdk.weights._fine_tuned import load_fine_tuned
from bcos_sdk.weights._fitting import choose, fill, mismatch, no_tensors

__all__ = ["load_model", "load_weights"]


def load_model(
    model: str | ModelSpec,
    *,
    weights: Path | str | None = None,
    classes: int | None = None,
    prefer_ema: bool = True,
) -> nn.Module:
    """Return the network with its weights, in eval mode: those of the file, else those that the registry names.

    Published weights are downloaded once and kept in the cache. If a training checkpoint has an averaged copy (EMA),
    that copy is loaded, unless `prefer_ema` is false. `classes` is for a fine-tuned model whose number of classes is
    not that of the registry. `load_fine_tuned` reads it from the file, and the labels too.
    """
    spec = model_registry().find(model) if isinstance(model, str) else model
    path = weights_file(spec) if weights is None else Path(weights)
    return load_fine_tuned(spec, path, classes=classes or spec.architecture.classes, prefer_ema=prefer_ema).network


def load_weights(network: nn.Module, path: Path | str, *, name: str, prefer_ema: bool = True) -> str:
    """Load a file into the network. The keys and shapes must be exactly those of the network, else an error is raised.

    The weights may be the whole file or a part of a training checkpoint, under any prefix (`model.`, `module.`,
    `ema.module.`, …). Returns where in the file they were; the log says it too.
    """
    source = str(path)
    checkpoint = read_checkpoint(path)
    candidates = find_candidates(checkpoint, network.state_dict())
    if not candidates:
        raise no_tensors(source)
    complete = [candidate for candidate in candidates if candidate.complete]
    if not complete:
        raise mismatch(source, name, checkpoint, candidates)
    taken = choose(complete, checkpoint, source, prefer_ema=prefer_ema)
    fill(network, taken, source)
    return taken.place
