"""Make the torch module that `package.module:factory` names. A fault in the user's code is shown with its own line."""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bcos_sdk.errors import BcosError, FactoryError

__all__ = ["is_factory", "make_module"]

_PACKAGE = Path(__file__).resolve().parents[1]


def is_factory(model: str) -> bool:
    """Whether MODEL means a factory rather than a registry name."""
    return ":" in model


def make_module(model: str) -> Any:
    """Import `package.module:factory` and return the module that the factory makes, in eval mode.

    Modules in the current folder can be imported. The name may also stand for a torch module instead of a factory.
    """
    import torch

    with _current_folder_on_path():
        with _faults_of(model, "cannot import"):
            found = _find(model)
        if isinstance(found, torch.nn.Module):
            return found.eval()
        if not callable(found):
            raise FactoryError(
                f"{model} has the type {type(found).__name__}, expected a torch module or a function that returns one",
                source=model,
                hint="Name a function without arguments: package.module:function.",
            )
        _refuse_arguments(model, found)
        with _faults_of(model, "failed"):
            network = found()
    if not isinstance(network, torch.nn.Module):
        raise FactoryError(
            f"{model} must return a torch module, got {type(network).__name__}",
            source=model,
            hint="Return the network itself, for example not a tuple or a state dict.",
        )
    return network.eval()


def _find(model: str) -> Any:
    module_name, _, attributes = model.partition(":")
    if not module_name or not attributes:
        raise FactoryError(
            f"{model!r} is not package.module:factory", source=model, hint="Write for example my_package.networks:make."
        )
    found: Any = import_module(module_name)
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            known = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
            raise FactoryError(
                f"cannot import {model}: {module_name} has no {attribute!r}",
                source=model,
                hint=f"It has {', '.join(known[:10]) or 'nothing that can be called'}.",
            )
        found = getattr(found, attribute)
    return found


def _refuse_arguments(model: str, factory: Any) -> None:
    """Raise if the factory cannot be called without arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in optional]
    if needed:
        raise FactoryError(
            f"{model} needs the argument{'s' if len(needed) > 1 else ''} {', '.join(needed)}, "
            "but a factory is called without arguments",
            source=model,
            hint="Give each argument a default, or write a function without arguments that calls it.",
        )


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    """Python's own entry for the current folder is missing when a command is started as a script."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


@contextmanager
def _faults_of(model: str, what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one error with the line that raised it."""
    try:
        yield
    except (BcosError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a script may also call sys.exit() when it is imported
        missing = isinstance(error, ModuleNotFoundError) and model.startswith(str(error.name))
        hint = "Run the command in the folder that contains the module, or install its package." if missing else None
        what_failed = f"{what} {model}" if what.startswith("cannot") else f"{model} {what}"
        reason = traceback.format_exception_only(error)[-1].strip()
        raise FactoryError(
            "\n".join([f"{what_failed}: {reason}", *_own_line(error)]), source=model, hint=hint
        ) from error


def _own_line(error: BaseException) -> list[str]:
    """File, line and statement of the user's code where the error was raised, as in a traceback."""
    if isinstance(error, SyntaxError) and error.filename:
        return [f'  File "{error.filename}", line {error.lineno}', f"    {(error.text or '').strip()}"]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    if not own:
        return []
    frame = own[-1]
    statement = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}', f"    {statement}"]


def _is_users(file: str) -> bool:
    if file.startswith("<"):  # importlib's own frames
        return False
    path = Path(file).resolve()
    is_library = "site-packages" in path.parts or path.is_relative_to(Path(traceback.__file__).resolve().parent)
    return not is_library and not path.is_relative_to(_PACKAGE)
