"""`package.module:factory`: a network of the user's own, made by calling what is named."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

__all__ = ["build_own", "is_factory", "parse_size"]


def is_factory(model: str) -> bool:
    return ":" in model


def build_own(model: str) -> Any:
    """What the factory returns, in eval mode; modules in the current folder are found."""
    module_name, _, attributes = model.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"{model} cannot be imported: {error}", param_hint="MODEL") from error
    finally:
        sys.path.pop(0)
    import torch

    network = found() if callable(found) and not isinstance(found, torch.nn.Module) else found
    if not isinstance(network, torch.nn.Module):
        raise click.BadParameter(f"{model} gives {type(network).__name__}, no torch module", param_hint="MODEL")
    return network.eval()


def parse_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """ "224" or "224x320": height and width."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise click.BadParameter(f"{text!r} is no size: write 224, or 224x320 for height x width")
    return int(sides[0]), int(sides[-1])
