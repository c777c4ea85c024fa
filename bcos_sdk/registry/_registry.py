"""Load `models.yaml` as a `Registry`: parse it, expand matrix entries, validate. An error names every faulty key."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bcos_sdk._paths import expanded
from bcos_sdk._untrusted import read_bounded, typed_errors
from bcos_sdk.errors import InputError, RegistryError, UnknownModelError, shown
from bcos_sdk.registry._derive import readable_faults
from bcos_sdk.registry._own_entries import complete_entry
from bcos_sdk.registry._strict_yaml import parse_yaml
from bcos_sdk.registry._variants import variants
from bcos_sdk.registry.schema import ModelSpec

__all__ = ["REGISTRY_VARIABLE", "Registry", "builtin_registry", "load_registry", "model_registry"]

SCHEMA_VERSION = 1
REGISTRY_VARIABLE = "BCOS_SDK_REGISTRY"
_BUILT_IN = "models.yaml"
_LARGEST_FILE = 1 << 20
_MOST_MODELS = 1000


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
    return _parse(files("bcos_sdk").joinpath(_BUILT_IN).read_text("utf-8"), source=_BUILT_IN, folder=None)


def model_registry(*paths: Path | str) -> Registry:
    """Return the built-in models, those of the files in BCOS_SDK_REGISTRY, and those of these files.

    The environment variable is a list of paths, separated like PATH. A name must not occur in two files: it would
    depend on the order of the files what the name means. A file that is given twice is read once.
    """
    listed = [part for part in os.environ.get(REGISTRY_VARIABLE, "").split(os.pathsep) if part.strip()]
    own = {
        _identity(path): path for path in (expanded(os.fspath(part), origin="a registry") for part in (*listed, *paths))
    }
    if not own:
        return builtin_registry()
    models: dict[str, ModelSpec] = dict(builtin_registry())
    homes = dict.fromkeys(models, f"the built-in {_BUILT_IN}")
    for path in own.values():
        added = load_registry(path)
        if problems := [f"models.{name}: {homes[name]} has a model of this name" for name in added if name in homes]:
            raise RegistryError(
                f"{path} uses names twice; choose other names:", source=str(path), problems=tuple(problems)
            )
        models.update(added)
        homes.update(dict.fromkeys(added, str(path)))
    return Registry(models)


def load_registry(path: Path | str) -> Registry:
    """Return the registry in your own file, which has the format of `models.yaml`.

    An entry may also have `base`, the name of a built-in model whose architecture and input it changes, and files of
    its own: `labels: {file: …}` and `weights: {file: …}`, relative to the registry file.
    """
    with typed_errors(lambda reason: RegistryError(f"cannot read {path}: {reason}", source=str(path))):
        text = read_bounded(Path(path), _LARGEST_FILE, pipes=True).decode("utf-8")
    return _parse(text, source=str(path), folder=_identity(Path(path)).parent)


def _identity(path: Path) -> Path:
    """The same path for two names of a file. Reading the file reports what is wrong with the path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a symbolic link that leads to itself
        return path


def _parse(text: str, *, source: str, folder: Path | None) -> Registry:
    document = parse_yaml(text, source=source)
    _check_document(document, source)
    models: dict[str, ModelSpec] = {}
    problems: list[str] = []
    for key, entry in document["models"].items():
        try:
            named_fields = list(variants(key, entry))
        except (ValueError, RecursionError) as error:  # RecursionError: aliases can nest deeper than the text
            problems.append(f"models.{shown(key, quote=False)}.matrix: {shown(error, quote=False)}")
            continue
        if len(models) + len(named_fields) > _MOST_MODELS:
            raise RegistryError(f"{source} has more than {_MOST_MODELS:,} models", source=source)
        for name, fields in named_fields:
            if name in models:
                problems.append(f"models.{key}: the name {name!r} is used twice")
            elif "name" in fields:
                problems.append(f"models.{name}.name: unknown key; the name of a model is the key of its entry")
            else:
                try:
                    complete = fields if folder is None else complete_entry(fields, folder, builtin_registry())
                    models[name] = ModelSpec.model_validate({"name": name, **complete})
                except ValidationError as error:
                    problems += readable_faults(error, f"models.{name}")
                except (ValueError, InputError) as error:
                    reason = error.message if isinstance(error, InputError) else str(error)
                    problems.append(f"models.{name}.{shown(reason, quote=False, most=500)}")
    if problems:
        raise RegistryError(f"{source} has faulty keys:", source=source, problems=tuple(problems))
    return Registry(models)


def _check_document(document: Any, source: str) -> None:
    problems = []
    if not isinstance(document, dict):
        problems.append("(top level): must be a mapping with the keys 'schema' and 'models'")
    else:
        if document.get("schema") != SCHEMA_VERSION:
            problems.append(f"schema: must be {SCHEMA_VERSION}, got {shown(document.get('schema'))}")
        if not isinstance(document.get("models"), dict):
            problems.append("models: must be a mapping from name to model")
        else:
            problems += [
                f"models.{shown(name, quote=False)}: must be a mapping, and its key a string"
                for name, entry in document["models"].items()
                if not (isinstance(name, str) and isinstance(entry, dict))
            ]
        problems += [
            f"{shown(key, quote=False)}: unknown key" for key in document.keys() - {"schema", "shared", "models"}
        ]
    if problems:
        raise RegistryError(f"{source} is not a model registry:", source=source, problems=tuple(problems))
