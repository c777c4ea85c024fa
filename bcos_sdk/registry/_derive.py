"""Derive a model from a registry entry: the same family with other classes, labels, input or architecture keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from pydantic import BaseModel, ValidationError

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError, RegistryError, shown
from bcos_sdk.registry._strict_yaml import parse_yaml
from bcos_sdk.registry._variants import merge
from bcos_sdk.registry.schema import ModelSpec, PublishedFigures

__all__ = ["architecture_keys", "derive", "parse_settings", "readable_faults"]


class _Labels(Enum):
    """The default of an argument for which None has a meaning."""

    KEEP = "keep"


_MOST_OF_A_FAULT = 500
_FIXED = {"family"}
_UNIONS = {"weights": {"published", "local"}}


def derive(
    spec: ModelSpec,
    *,
    classes: int | None = None,
    labels: Sequence[str] | _Labels | None = _Labels.KEEP,
    input_spec: InputSpec | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ModelSpec:
    """Return the spec with these changes, validated like a registry entry.

    `settings` maps keys of the architecture to values, with dots for keys inside others: {"norm.eps": 1e-6}. A
    mapping changes only the keys that it has, as in a registry file: {"norm": {"eps": 1e-6}} is the same. If the number
    of classes changes and no labels are given, the classes of the result have no names.
    """
    changes = dict(settings or {}) | ({} if classes is None else {"classes": classes})
    architecture = spec.architecture.model_dump()
    for key, value in changes.items():
        _set(architecture, key, value, spec)
    fields = spec.model_dump() | {"architecture": architecture}
    if "classes" in changes:
        fields["classes_open"] = False
    if input_spec is not None:
        fields["input"] = input_spec.model_dump()
    if not isinstance(labels, _Labels):
        fields["labels"] = labels
    elif architecture["classes"] != spec.architecture.classes:
        fields["labels"] = None
    if architecture != spec.architecture.model_dump():
        fields["published"] = PublishedFigures()
    try:
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        faults = "\n  ".join(readable_faults(error, without=("architecture", spec.family)))
        raise InputError(
            f"{spec.name} cannot be changed in this way:\n  {faults}",
            source=spec.name,
            hint=f"`bcos-sdk models show {spec.name}` shows the values of the registry.",
        ) from error


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse "key=value" texts to a dict of settings. A value is written as in a registry file, in YAML."""
    settings: dict[str, Any] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not key:
            raise InputError(f"{shown(text)} is not a setting", hint="Write key=value, for example norm.eps=1e-6.")
        if key in settings:
            raise InputError(f"{key} is set twice", hint="Set each key once.")
        try:
            settings[key] = parse_yaml(value, source=f"the value of {shown(key, quote=False)}, {shown(value)},")
        except RegistryError as error:
            raise InputError(error.message, hint="Write the value as in YAML: 2, 1e-6, true, null, [3, 4].") from error
    return settings


def architecture_keys(config: BaseModel, prefix: str = "") -> Iterator[str]:
    """The keys that `derive` can set, those inside other keys with dots."""
    for name in type(config).model_fields:
        if name in _FIXED:
            continue
        yield prefix + name
        if isinstance(value := getattr(config, name), BaseModel):
            yield from architecture_keys(value, f"{prefix}{name}.")


def readable_faults(error: ValidationError, prefix: str = "", without: Sequence[str] = ()) -> list[str]:
    """One line per fault: the path of the key, what is wrong, and the value.

    `without` are the first parts of paths that the reader does not know. Pydantic adds the chosen member of a union.
    """
    lines = []
    for fault in error.errors(include_url=False):
        parts = [shown(part, quote=False) for part in fault["loc"]]
        if len(parts) > 1 and parts[1] in _UNIONS.get(parts[0], ()):
            del parts[1]
        if without and parts[: len(without)] == list(without):
            del parts[: len(without)]
        path = ".".join(filter(None, [prefix, *parts]))
        given = fault["input"]
        got = f" (got {shown(given)})" if isinstance(given, (str, int, float)) else ""
        lines.append(
            shown(f"{path}: {fault['msg']}" if path else fault["msg"], quote=False, most=_MOST_OF_A_FAULT) + got
        )
    return lines


def _set(architecture: dict[str, Any], key: str, value: Any, spec: ModelSpec) -> None:
    known = list(architecture_keys(spec.architecture))
    if key not in known:
        raise InputError(
            f"the architecture of {spec.name} ({spec.family}) has no key {shown(key)}",
            source=shown(key, quote=False),
            hint=f"Its keys are {', '.join(known)}.",
        )
    *parents, last = key.split(".")
    node = architecture
    for parent in parents:
        node = node[parent]
        if not isinstance(node, dict):
            raise InputError(f"{key} and {parent} cannot both be set", source=key, hint=f"Give {parent} alone.")
    both_mappings = isinstance(value, Mapping) and isinstance(node[last], dict)
    node[last] = merge(node[last], dict(value)) if both_mappings else value
