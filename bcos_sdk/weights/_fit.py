"""Finding a network's weights inside a checkpoint, and saying clearly when they are not there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.errors import CheckpointError, WeightsMismatchError
from bcos_sdk.models import build_model
from bcos_sdk.registry import ModelSpec, builtin_registry
from bcos_sdk.weights._checkpoint import read_checkpoint

__all__ = ["load_weights"]

Shapes = Mapping[str, torch.Size]

_DEEPEST_NESTING = 3
_NAMES_SHOWN = 5
_PREFIXES_TRIED = 4  # enough for a model, its average, and wrappers of either


def load_weights(network: nn.Module, path: Path | str, *, name: str, prefer_ema: bool = True) -> None:
    """Fill the network from a file: every key present, none left over, every shape equal, or an error.

    The weights may be the whole file or lie inside a training checkpoint, under any prefix
    (`model.`, `module.`, `ema.module.`, …).
    """
    checkpoint = read_checkpoint(path)
    wanted = _shapes(network.state_dict())
    candidates = _candidates(checkpoint, wanted)
    if not candidates:
        raise CheckpointError(
            f"{path} holds no tensors", source=str(path), hint="Pass a file with a model's state dict."
        )
    complete = [candidate for candidate in candidates if candidate.complete]
    if not complete:
        raise _mismatch(str(path), name, checkpoint, max(candidates, key=lambda one: one.found))
    best = max(complete, key=lambda candidate: candidate.is_ema == prefer_ema)
    network.load_state_dict(best.tensors, strict=True)


@dataclass(frozen=True)
class _Candidate:
    """A set of tensors in a checkpoint that may be the network's, and how it differs from what is wanted."""

    where: str
    tensors: dict[str, Tensor]
    found: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]

    @classmethod
    def of(cls, where: str, tensors: dict[str, Tensor], wanted: Shapes) -> _Candidate:
        misshapen = tuple(
            f"{key} (file {list(tensors[key].shape)}, model {list(shape)})"
            for key, shape in wanted.items()
            if key in tensors and tensors[key].shape != shape
        )
        missing = tuple(key for key in wanted if key not in tensors)
        unexpected = tuple(key for key in tensors if key not in wanted)
        found = len(wanted) - len(missing) - len(misshapen)
        return cls(where, tensors, found, missing, unexpected, misshapen)

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.misshapen)

    @property
    def is_ema(self) -> bool:
        return "ema" in re.split(r"[^a-z]+", self.where.lower())


def _candidates(checkpoint: Mapping[str, Any], wanted: Shapes) -> list[_Candidate]:
    """Every dict of tensors in the checkpoint, under each prefix that gives the most wanted keys.

    Where no wanted key appears at all the dict is taken as it is, so that it can be reported on.
    """
    candidates = []
    for where, tensors in _tensor_dicts(checkpoint):
        prefixes = Counter(key[:cut] for key in tensors for cut in _cuts(key) if key[cut:] in wanted)
        for prefix, _ in prefixes.most_common(_PREFIXES_TRIED) or [("", 0)]:
            copy = {key[len(prefix) :]: tensors[key] for key in tensors if key.startswith(prefix)}
            candidates.append(_Candidate.of(where + prefix, copy, wanted))
    return candidates


def _cuts(key: str) -> list[int]:
    """Where a key may end its prefix: at its start and after every dot."""
    return [0, *(match.end() for match in re.finditer(r"\.", key))]


def _tensor_dicts(node: Any, where: str = "", depth: int = 0) -> Iterator[tuple[str, dict[str, Tensor]]]:
    if not isinstance(node, Mapping) or depth > _DEEPEST_NESTING:
        return
    tensors = {key: tensor for key, tensor in node.items() if isinstance(tensor, Tensor)}
    if tensors and all(isinstance(key, str) for key in tensors):
        yield where, tensors
    for key, value in node.items():
        yield from _tensor_dicts(value, f"{where}{key}.", depth + 1)


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {key: tensor.shape for key, tensor in state.items()}


@cache
def _shapes_of(spec: ModelSpec) -> Shapes:
    with torch.device("meta"):
        return _shapes(build_model(spec).state_dict())


def _models_that_fit(checkpoint: Mapping[str, Any]) -> tuple[str, ...]:
    """The registry models whose weights the checkpoint does hold."""
    fits = []
    for name, spec in builtin_registry().items():
        wanted = _shapes_of(spec)
        if any(candidate.complete for candidate in _candidates(checkpoint, wanted)):
            fits.append(name)
    return tuple(fits)


def _mismatch(
    path: str, name: str, checkpoint: Mapping[str, Any], nearest: _Candidate
) -> WeightsMismatchError:
    lines = [f"{path} does not hold the weights of {name}"]
    for title, keys in [
        ("missing", nearest.missing),
        ("unexpected", nearest.unexpected),
        ("wrong shape", nearest.misshapen),
    ]:
        if keys:
            lines.append(f"  {title} ({len(keys)}): {_shortened(keys)}")
    fits = _models_that_fit(checkpoint)
    hint = f"They fit: {_shortened(fits)}." if fits else "They fit no model of the registry."
    return WeightsMismatchError(
        "\n".join(lines),
        source=path,
        hint=hint,
        missing=nearest.missing,
        unexpected=nearest.unexpected,
        misshapen=nearest.misshapen,
        fits=fits,
    )


def _shortened(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
