"""Load a fine-tuned model: the architecture of a registry model, with classes and labels of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from bcos_sdk.errors import InputError, WeightsMismatchError
from bcos_sdk.models import build_model
from bcos_sdk.registry import ModelSpec, derive, model_registry
from bcos_sdk.weights._candidates import Candidate, find_candidates
from bcos_sdk.weights._checkpoint import read_checkpoint
from bcos_sdk.weights._classifier import Shapes, shapes_of
from bcos_sdk.weights._fitting import at_key, choose, fill, fine_tuned_as, mismatch, no_tensors
from bcos_sdk.weights._label_search import find_labels

__all__ = ["FineTuned", "load_fine_tuned"]

Origin = Literal["given", "checkpoint", "registry", "none"]


@dataclass(frozen=True)
class FineTuned:
    """A network with the weights of a file, and the spec that describes it: its classes, labels and input."""

    network: nn.Module
    spec: ModelSpec
    place: str
    """Where in the file the weights are."""
    labels_from: Origin
    note: str | None = None
    """Where in the file the labels are, or why those of the file were not used."""


def load_fine_tuned(
    model: str | ModelSpec,
    weights: Path | str,
    *,
    classes: int | None = None,
    labels: Sequence[str] | None = None,
    prefer_ema: bool = True,
    key: str | None = None,
) -> FineTuned:
    """Load a checkpoint whose network is that of the registry model, for any number of classes.

    The number of classes is read from the classifier. If `classes` or `labels` are given, they must agree with it. The
    labels are those given, else those in the checkpoint, else those of the registry if it has the same number of
    classes. Otherwise the classes have no names. If the file has several complete copies of the weights that differ,
    `key` names the one to load, for example "state_dict.teacher".
    """
    spec = model_registry().find(model) if isinstance(model, str) else model
    source = str(weights)
    checkpoint = read_checkpoint(weights)
    shapes = shapes_of(spec.architecture)
    copies = _copies(checkpoint, shapes, spec)
    if not copies:
        raise no_tensors(source)
    complete = [(copy, count) for copy, count in copies if copy.complete]
    if not complete:
        raise mismatch(source, spec.name, checkpoint, [copy for copy, _ in copies])
    places = {copy.where for copy in at_key([copy for copy, _ in complete], key, source)}
    complete = [(copy, count) for copy, count in complete if copy.where in places]
    counts = sorted({count for _, count in complete})
    if classes is not None and classes not in counts:
        raise _other_classes(source, spec, shapes, *complete[0], classes)
    if classes is None and len(counts) > 1:
        raise InputError(
            f"{source} has several networks, with {' and '.join(map(str, counts))} classes",
            source=source,
            hint="Choose one with --classes (classes=…) or --weights-key (key=…).",
        )
    chosen = counts[0] if classes is None else classes
    fitting = [copy for copy, count in complete if count == chosen]
    taken = choose(fitting, checkpoint, source, prefer_ema=prefer_ema, key=key)
    names, origin, note = _labels(spec, checkpoint, chosen, labels, source)
    tuned = derive(spec, classes=chosen, labels=names)
    network = build_model(tuned)
    fill(network, taken, source)
    return FineTuned(network, tuned, taken.place, origin, note)


def _copies(checkpoint: Mapping[str, Any], shapes: Shapes, spec: ModelSpec) -> list[tuple[Candidate, int]]:
    """Every copy in the checkpoint, compared with the network that has as many classes as the copy."""
    copies = []
    for found in find_candidates(checkpoint, shapes.state):
        count = shapes.classes_of(found.tensors) or spec.architecture.classes
        copies.append((Candidate.of(found.where, found.tensors, shapes.with_classes(count)), count))
    return copies


def _labels(
    spec: ModelSpec, checkpoint: Mapping[str, Any], classes: int, given: Sequence[str] | None, source: str
) -> tuple[Sequence[str] | str | None, Origin, str | None]:
    """The labels, where they come from, and a note about those in the checkpoint."""
    if given is not None:
        if len(given) != classes:
            raise InputError(
                f"{len(given)} labels were given, but {source} has {classes} classes",
                source=source,
                hint="Pass one label per class, in class order.",
            )
        return given, "given", None
    found, note = find_labels(checkpoint, classes)
    if found is not None:
        return found, "checkpoint", note
    if spec.labels is not None and spec.architecture.classes == classes:
        return spec.labels, "registry", note
    return None, "none", note


def _other_classes(
    source: str, spec: ModelSpec, shapes: Shapes, copy: Candidate, count: int, classes: int
) -> WeightsMismatchError:
    wanted = Candidate.of(copy.where, copy.tensors, shapes.with_classes(classes))
    key = next(iter(shapes.classifier))
    is_registered = classes == spec.architecture.classes
    origin = f"as {spec.name} has in the registry" if is_registered else "--classes, or classes=…"
    return WeightsMismatchError(
        f"{source} has {count} classes (its classifier {copy.where}{key} is {list(copy.tensors[key].shape)}), "
        f"but {classes} were asked for ({origin})",
        source=source,
        hint=fine_tuned_as(spec.name, count, source),
        missing=wanted.missing,
        unexpected=wanted.unexpected,
        misshapen=wanted.misshapen,
        fits=(),
    )
