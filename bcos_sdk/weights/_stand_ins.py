"""Read checkpoints of training frameworks: objects of theirs become inert stand-ins, so that no code of theirs runs.

A checkpoint of Lightning or timm often holds more than tensors: an `argparse.Namespace`, a path, a config. torch
refuses such a file. Here each class of a known framework is replaced by a class of this module that only keeps its
data. Nothing is imported and nothing of the file is called. A file with any other class stays refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

__all__ = ["StandIn", "replaceable", "unsafe_names"]

_FRAMEWORKS = (
    "accelerate",
    "addict",
    "argparse",
    "box",
    "datetime",
    "easydict",
    "enum",
    "fvcore",
    "hydra",
    "ignite",
    "lightning",
    "lightning_fabric",
    "lightning_utilities",
    "ml_collections",
    "mmcv",
    "mmengine",
    "numpy",
    "omegaconf",
    "pathlib",
    "pytorch_lightning",
    "timm",
    "torchmetrics",
    "transformers",
    "types.SimpleNamespace",
    "typing",
    "uuid",
    "yacs",
)
"""Modules whose classes may occur beside the weights, and single names of modules that hold more than classes."""

_PLAIN_TYPES = {
    f"builtins.{kind.__name__}" for kind in (bool, bytes, dict, float, frozenset, int, list, object, str, tuple, type)
}
"""Types that a config may name, for example as the type of a field."""

_MAPPINGS = {"AttributeDict", "Box", "CfgNode", "ConfigDict", "Dict", "EasyDict", "defaultdict"}
"""Subclasses of dict, whose items torch sets one by one. `ml_collections.ConfigDict` is not one and keeps its state."""


class StandIn:
    """The data of an object whose class was not used: `arguments` of its constructor and its `state`."""

    def __new__(cls, *arguments: Any) -> StandIn:
        made = super().__new__(cls)
        made.arguments = arguments
        made.state = None
        return made

    arguments: tuple[Any, ...]
    state: Any

    def __init__(self, *_arguments: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _MappingStandIn:
    """Makes an OrderedDict: torch sets items of built-in dicts only."""

    def __new__(cls, *_arguments: Any) -> Any:
        return OrderedDict()


def unsafe_names(path: Path) -> list[str]:
    """The full names in a checkpoint that torch does not load, sorted; empty if they cannot be listed.

    The pickle is read as data. Only zip files, the format since torch 1.6, can be listed.
    """
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # for damaged and for older files torch raises many types
        return []


def replaceable(names: Sequence[str]) -> list[Any]:
    """The stand-ins for those of the names that belong to a known framework, in the form `safe_globals` takes."""
    return [
        (_MappingStandIn if _is_mapping(name) else StandIn, name) for name in names if _belongs_to_a_framework(name)
    ]


def _belongs_to_a_framework(name: str) -> bool:
    known = any(name == framework or name.startswith(f"{framework}.") for framework in _FRAMEWORKS)
    return known or name in _PLAIN_TYPES or name == "collections.defaultdict"


def _is_mapping(name: str) -> bool:
    return name.rpartition(".")[2] in _MAPPINGS and not name.startswith("ml_collections.")
