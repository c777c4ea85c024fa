"""Choose a copy of the weights in a checkpoint and fill a network with it, or describe why none fits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from bcos_sdk._logs import log
from bcos_sdk.errors import CheckpointError, WeightsMismatchError
from bcos_sdk.registry import ModelSpec, model_registry
from bcos_sdk.weights._candidates import Candidate, averaged_elsewhere, candidates_in, may_contain, tensor_dicts
from bcos_sdk.weights._classifier import shapes_of

__all__ = ["at_key", "choose", "fill", "fine_tuned_as", "mismatch", "no_tensors"]

_NAMES_SHOWN = 5
_MOST_COMPARED = 20_000
"""Tensors of a checkpoint that is compared with all models of the registry, to say which ones fit."""


def at_key(complete: Sequence[Candidate], key: str | None, source: str) -> list[Candidate]:
    """Those of the complete copies whose path is the key or ends with it; all of them without a key."""
    if key is None:
        return list(complete)
    wanted = key.strip(".")
    exact = [copy for copy in complete if copy.key == wanted]
    found = exact or [copy for copy in complete if wanted and copy.key.endswith(f".{wanted}")]
    if not found:
        raise CheckpointError(
            f"{source} has no complete copy of the weights at {key!r}",
            source=source,
            hint=f"It has one at {_places(complete)}.",
        )
    return found


def choose(
    complete: Sequence[Candidate],
    checkpoint: Mapping[str, Any],
    source: str,
    *,
    prefer_ema: bool,
    key: str | None = None,
) -> Candidate:
    """Return one of the complete copies: the averaged one or the other, as preferred. The log says which.

    Raises if several copies remain and differ. With a key, the caller has chosen and averages play no part.
    """
    best = complete[0] if key is not None else max(complete, key=lambda copy: copy.averaged == prefer_ema)
    alike = complete if key is not None else [copy for copy in complete if copy.averaged == best.averaged]
    if not all(copy.equals(best) for copy in alike if copy is not best):
        raise CheckpointError(
            f"{source} has several complete copies of the weights, and they differ: {_places(alike)}",
            source=source,
            hint=f"Choose one, for example --weights-key {shlex.quote(best.key)}, in Python key={best.key!r}.",
        )
    log.info("%s: loaded the weights at %s", source, best.place)
    if key is not None:
        return best
    if prefer_ema and not best.averaged and (average := averaged_elsewhere(checkpoint, best)):
        log.warning(
            "%s: loaded the weights at %s, which are not averaged: the average that contains '%s' is incomplete",
            source,
            best.place,
            average,
        )
    if best.averaged and not prefer_ema:
        log.warning("%s: loaded the averaged weights at %s: no other copy is complete", source, best.place)
    return best


def fill(network: nn.Module, copy: Candidate, source: str) -> None:
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


def no_tensors(source: str) -> CheckpointError:
    return CheckpointError(
        f"{source} contains no tensors", source=source, hint="Pass a file with the state dict of a model."
    )


def mismatch(
    source: str, name: str, checkpoint: Mapping[str, Any], candidates: Sequence[Candidate]
) -> WeightsMismatchError:
    """The error for a checkpoint without a complete copy. It lists the differences of the nearest one."""
    nearest = max(candidates, key=lambda candidate: (candidate.found, len(candidate.tensors)))
    lines = [f"{source} does not contain the weights of {name}"]
    for title, keys in [
        ("missing", nearest.missing),
        ("unexpected", nearest.unexpected),
        ("wrong shape or type", nearest.misshapen),
    ]:
        if keys:
            lines.append(f"  {title} ({len(keys)}): {_shortened(keys)}")
    dicts = list(tensor_dicts(checkpoint))
    few = sum(len(tensors) for _, tensors in dicts) <= _MOST_COMPARED
    fits, others = _models_that_fit(dicts) if few else ((), [])
    hint = f"The weights fit {_shortened(fits)}." if fits else "The weights fit no model of the registry."
    if not few:
        hint = f"Save only the weights: the file has more than {_MOST_COMPARED:,} tensors."
    if others and not fits:
        fine_tuned, classes = others[0]
        hint = fine_tuned_as(fine_tuned, classes, source)
        more = tuple(other for other, _ in others[1:])
        hint += f" They also fit {_shortened(more)} with another classifier." if more else ""
    return WeightsMismatchError(
        "\n".join(lines),
        source=source,
        hint=hint,
        missing=nearest.missing,
        unexpected=nearest.unexpected,
        misshapen=nearest.misshapen,
        fits=fits,
    )


def fine_tuned_as(name: str, classes: int, source: str) -> str:
    """The hint for weights that are those of a model except for the number of classes."""
    return (
        f"This looks like a fine-tuned {name} with {classes} classes. "
        f"Use: bcos-sdk export {name} --weights {shlex.quote(source)}, "
        f"or in Python: load_model({name!r}, weights={source!r}, classes={classes})."
    )


def _models_that_fit(
    dicts: Sequence[tuple[str, dict[str, Tensor]]],
) -> tuple[tuple[str, ...], list[tuple[str, int]]]:
    """The registry models whose weights the checkpoint contains, and those with another number of classes."""
    exact: list[str] = []
    others: list[tuple[str, int]] = []
    for name, spec in model_registry().items():
        classes = _classes_that_fit(dicts, spec)
        if spec.architecture.classes in classes:
            exact.append(name)
        elif classes:
            others.append((name, classes[0]))
    return tuple(exact), others


def _classes_that_fit(dicts: Sequence[tuple[str, dict[str, Tensor]]], spec: ModelSpec) -> list[int]:
    shapes = shapes_of(spec.architecture)
    plausible = [(where, tensors) for where, tensors in dicts if may_contain(tensors, shapes.state)]
    return [
        classes
        for candidate in candidates_in(plausible, shapes.state)
        if (classes := shapes.classes_of(candidate.tensors))
        and Candidate.of(candidate.where, candidate.tensors, shapes.with_classes(classes)).complete
    ]


def _places(copies: Sequence[Candidate]) -> str:
    return " and ".join(dict.fromkeys(copy.place for copy in copies))


def _shortened(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
