"""Load `models.yaml` as a `Registry`: parse it, expand matrix entries, validate. An error names every faulty key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bcos_sdk.errors import RegistryError, UnknownModelError
from bcos_sdk.registry._strict_yaml import parse_yaml
from bcos_sdk.registry._variants import variants
from bcos_sdk.registry.schema import ModelSpec

__all__ = ["Registry", "builtin_registry", "load_registry"]

SCHEMA_VERSION = 1


class Registry(Mapping[str, ModelSpec]):
    """Models by name, in file order. `find` suggests similar names for an unknown one."""

    def __init__(self, models: Mapping[str, ModelSpec]) -> None:
        self._models = dict(models)

    def __getitem__(self, name: str) -> ModelSpec:
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def find(self, name: str) -> ModelSpec:
        """Return the model of that name, or raise `UnknownModelError` with similar names in the hint."""
        if name in self._models:
            return self._models[name]
        close = difflib.get_close_matches(name, self._models, n=3)
        known = f"Did you mean {' or '.join(close)}? " if close else ""
        raise UnknownModelError(
            f"the registry has no model {name!r}", source=name, hint=f"{known}`bcos-sdk models` lists all models."
        )


@cache
def builtin_registry() -> Registry:
    """Return the registry of this package."""
    return _parse(files("bcos_sdk").joinpath("models.yaml").read_text("utf-8"), source="models.yaml")


def load_registry(path: Path | str) -> Registry:
    """Return the registry in your own file, which has the format of `models.yaml`."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"cannot read {path}: {error}", source=str(path)) from error
    return _parse(text, source=str(path))


def _parse(text: str, *, source: str) -> Registry:
    document = parse_yaml(text, source=source)
    _check_document(document, source)
    models: dict[str, ModelSpec] = {}
    problems: list[str] = []
    for key, entry in document["models"].items():
        try:
            named_fields = list(variants(key, entry))
        except (ValueError, RecursionError) as error:  # RecursionError: aliases can nest deeper than the text
            problems.append(f"models.{key}.matrix: {error}")
            continue
        for name, fields in named_fields:
            if name in models:
                problems.append(f"models.{key}: the name {name!r} is used twice")
            elif "name" in fields:
                problems.append(f"models.{name}.name: unknown key; the name of a model is the key of its entry")
            else:
                try:
                    models[name] = ModelSpec.model_validate({"name": name, **fields})
                except ValidationError as error:
                    problems += _readable(error, f"models.{name}")
    if problems:
        raise RegistryError(f"{source} has faulty keys:", source=source, problems=tuple(problems))
    return Registry(models)


def _check_document(document: Any, source: str) -> None:
    problems = []
    if not isinstance(document, dict):
        problems.append("(top level): must be a mapping with the keys 'schema' and 'models'")
    else:
        if document.get("schema") != SCHEMA_VERSION:
            problems.append(f"schema: must be {SCHEMA_VERSION}, got {document.get('schema')!r}")
        if not isinstance(document.get("models"), dict):
            problems.append("models: must be a mapping from name to model")
        else:
            problems += [
                f"models.{name}: must be a mapping, and its key a string"
                for name, entry in document["models"].items()
                if not (isinstance(name, str) and isinstance(entry, dict))
            ]
        problems += [f"{key}: unknown key" for key in document.keys() - {"schema", "shared", "models"}]
    if problems:
        raise RegistryError(f"{source} is not a model registry:", source=source, problems=tuple(problems))


def _readable(error: ValidationError, prefix: str) -> list[str]:
    """One line per fault: the path of the key, what is wrong, and the value."""
    lines = []
    for fault in error.errors(include_url=False):
        path = ".".join([prefix, *map(str, fault["loc"])])
        given = fault["input"]
        shown = f" (got {given!r})" if isinstance(given, (str, int, float)) else ""
        lines.append(f"{path}: {fault['msg']}{shown}")
    return lines
