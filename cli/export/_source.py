"""The model to export: a network with its weights, labels and preprocessing, and what was assumed about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcos_sdk.cli.export._assumptions import Assumption, assumed_architecture
from bcos_sdk.cli.export._choices import Choices
from bcos_sdk.cli.export._own_module import make_module
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError, WeightsMismatchError
from bcos_sdk.registry import ModelSpec, architecture_keys, builtin_registry, derive

if TYPE_CHECKING:
    from bcos_sdk.weights import FineTuned

__all__ = ["Source", "from_factory", "from_registry"]

_DEFAULT_SIZE = (224, 224)


@dataclass(frozen=True)
class Source:
    """A network in eval mode and what its bundle will say about it. `facts` are lines of the summary."""

    network: Any
    labels: Sequence[str] | None
    preprocessing: InputSpec
    assumed: Sequence[Assumption] = ()
    facts: Sequence[tuple[str, str]] = ()


def from_registry(spec: ModelSpec, choices: Choices) -> Source:
    """The registry model with the weights of the file, with those that the registry names, or with random ones."""
    changed = choices.applied_to(spec)
    if choices.random_weights:
        return _with_random_weights(changed, choices)
    if choices.weights is not None:
        return _with_own_weights(changed, spec, choices)
    from bcos_sdk.weights import weights_file

    path, is_open = weights_file(changed), spec.classes_open
    names = choices.label_names or (None if is_open else changed.class_names)
    tuned = _loaded(changed, path, choices, choices.classes if is_open else changed.architecture.classes, names)
    if spec.local_weights is None:
        return Source(tuned.network, tuned.spec.class_names, tuned.spec.input)
    assumed = [
        *assumed_architecture(tuned.spec, spec.base or spec.name, choices.stated_keys | _stated_keys(spec)),
        *_assumed_labels(tuned, spec.base or spec.name),
    ]
    origin = str(choices.labels or "those of the registry entry") if names else _origin(tuned, spec)
    return Source(tuned.network, tuned.spec.class_names, tuned.spec.input, assumed, _facts(str(path), tuned, origin))


def _with_random_weights(spec: ModelSpec, choices: Choices) -> Source:
    from bcos_sdk.models import build_model

    names = choices.label_names
    spec = derive(spec, classes=choices.classes or (None if names is None else len(names)))
    return Source(build_model(spec), names or spec.class_names, spec.input)


def _with_own_weights(spec: ModelSpec, registered: ModelSpec, choices: Choices) -> Source:
    assert choices.weights is not None
    tuned = _loaded(spec, choices.weights, choices, choices.classes)
    choices.check_labels(tuned.spec.architecture.classes, choices.weights)
    labels = choices.label_names or tuned.spec.class_names
    assumed = [
        *assumed_architecture(tuned.spec, registered.name, choices.stated_keys),
        *choices.assumed_input(tuned.spec.input),
        *([] if choices.labels else _assumed_labels(tuned, registered.name)),
    ]
    origin = str(choices.labels or _origin(tuned, registered))
    return Source(tuned.network, labels, tuned.spec.input, assumed, _facts(str(choices.weights), tuned, origin))


def _loaded(
    spec: ModelSpec, path: Path, choices: Choices, classes: int | None, labels: Sequence[str] | None = None
) -> FineTuned:
    from bcos_sdk.weights import load_fine_tuned

    try:
        return load_fine_tuned(
            spec, path, classes=classes, labels=labels, prefer_ema=choices.ema, key=choices.weights_key
        )
    except WeightsMismatchError as error:
        if keys := [key for key in choices.settings if key not in ("logit_bias", "temperature")]:
            error.hint = f"--set changed {', '.join(keys)} of {spec.name}: this may be the reason. {error.hint}"
        raise


def _assumed_labels(tuned: FineTuned, origin: str) -> list[Assumption]:
    if tuned.labels_from != "registry":
        return []
    first = ", ".join((tuned.spec.class_names or ())[:2])
    return [Assumption("labels", f"those of {origin}: {first}, …", "--labels", "none")]


def from_factory(model: str, choices: Choices) -> Source:
    """The module that the user's factory makes, with the weights of the file if one is given."""
    names, note = choices.label_names, None
    spec = choices.input_of(InputSpec.for_photographs(choices.input_size or _DEFAULT_SIZE))
    network = make_module(model)
    facts: list[tuple[str, str]] = []
    checkpoint: dict[str, Any] = {}
    if choices.weights is not None:
        from bcos_sdk.weights import find_labels, load_weights, read_checkpoint

        checkpoint = read_checkpoint(choices.weights)
        place = load_weights(
            network,
            choices.weights,
            name=model,
            prefer_ema=choices.ema,
            key=choices.weights_key,
            checkpoint=checkpoint,
        )
        facts.append(("weights", f"{choices.weights}, at {place}"))
    classes = _classes_of(network, spec.shape)
    if classes is None:
        return Source(network, names, spec, choices.assumed_input(spec), facts)
    if choices.classes not in (None, classes):
        raise InputError(
            f"--classes is {choices.classes}, but {model} returns {classes} logits",
            source=model,
            hint="Leave --classes out, or change the factory.",
        )
    choices.check_labels(classes, model)
    if names is None and choices.weights is not None:
        names, note = find_labels(checkpoint, classes)
    origin = str(choices.labels) if choices.labels else _found(note) if names else _nameless(note)
    facts += [("classes", f"{classes}, from the output of the module"), ("labels", origin)]
    return Source(network, names, spec, choices.assumed_input(spec), facts)


def _facts(path: str, tuned: FineTuned, labels: str) -> list[tuple[str, str]]:
    classes = f"{tuned.spec.architecture.classes}, from the classifier"
    return [("weights", f"{path}, at {tuned.place}"), ("classes", classes), ("labels", labels)]


def _origin(tuned: FineTuned, spec: ModelSpec) -> str:
    """Where the labels come from that no option gave."""
    if tuned.labels_from == "checkpoint":
        return _found(tuned.note)
    if tuned.labels_from == "none":
        return _nameless(tuned.note)
    return f"those of {spec.name}{_in_brackets(tuned.note)}"


def _found(note: str | None) -> str:
    return f"'{note}' in the weights file"


def _nameless(note: str | None) -> str:
    return f"none, pass --labels FILE to name the classes{_in_brackets(note)}"


def _in_brackets(note: str | None) -> str:
    return f" ({note})" if note else ""


def _stated_keys(spec: ModelSpec) -> set[str]:
    """The keys of the architecture that an entry of the user's own registry states and does not take from its base."""
    config, base = spec.architecture, builtin_registry()[spec.base].architecture if spec.base else None
    if base is None:
        norm = getattr(config, "norm", None)
        return set(config.model_fields_set) | ({f"norm.{key}" for key in norm.model_fields_set} if norm else set())
    return {key for key in architecture_keys(config) if attrgetter(key)(config) != attrgetter(key)(base)}


def _classes_of(network: Any, shape: tuple[int, int, int]) -> int | None:
    """The number of logits that a module returns; None if it cannot be run, which the export then explains."""
    import torch

    tensors = (*network.parameters(), *network.buffers())
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.zeros(()))
    try:
        with torch.no_grad():
            logits = network(torch.zeros(2, *shape).to(like))
        return int(logits.shape[1]) if logits.ndim == 2 else None
    except Exception:  # any module of the user; the capture reports its fault
        return None
