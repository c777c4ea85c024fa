"""Find all copies of a network's weights in a checkpoint, and how each differs from the network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bcos_sdk.errors import CheckpointError, shown

__all__ = ["Candidate", "averaged_elsewhere", "candidates_in", "find_candidates", "may_contain", "tensor_dicts"]

State = Mapping[str, Tensor]

_DEEPEST_NESTING = 3
_MOST_ENTRIES = 100_000
"""Entries of all dicts that are searched. A dict that is in several places counts each time."""
_PREFIXES_TRIED = 4  # enough for a model, its average, and one wrapper of each
# torch.compile, FSDP and activation checkpointing add a part to the keys of every module that they wrap, at any depth.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


@dataclass(frozen=True)
class Candidate:
    """A set of tensors in a checkpoint that may be the weights of the network, and how it differs from them."""

    where: str
    tensors: dict[str, Tensor]
    found: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]

    @classmethod
    def of(cls, where: str, tensors: dict[str, Tensor], wanted: State) -> Candidate:
        compared = {key: _difference(tensors[key], like) for key, like in wanted.items() if key in tensors}
        misshapen = tuple(f"{key} ({difference})" for key, difference in compared.items() if difference)
        missing = tuple(key for key in wanted if key not in tensors)
        unexpected = tuple(key for key in tensors if key not in wanted)
        return cls(where, tensors, len(compared) - len(misshapen), missing, unexpected, misshapen)

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.misshapen)

    @property
    def averaged(self) -> bool:
        return _names_an_average(self.where)

    @property
    def key(self) -> str:
        """The path of the copy in the checkpoint; empty for its top level."""
        return self.where.rstrip(".")

    @property
    def place(self) -> str:
        return f"'{self.key}'" if self.where else "its top level"

    def equals(self, other: Candidate) -> bool:
        """Whether both have the same tensors, by value."""
        return self.tensors.keys() == other.tensors.keys() and all(
            _equal(tensor, other.tensors[key]) for key, tensor in self.tensors.items()
        )


def find_candidates(checkpoint: Mapping[str, Any], wanted: State) -> list[Candidate]:
    """Return each dict of tensors in the checkpoint, once per prefix that can be removed to give wanted keys.

    If all wanted keys begin with the same part (`0.` of a network in a Sequential), the file may lack it. A dict
    without any wanted key becomes one candidate with its keys unchanged, so that an error can describe it.
    """
    return candidates_in(tensor_dicts(checkpoint), wanted)


def may_contain(tensors: State, wanted: State) -> bool:
    """Whether the dict can have all wanted keys under some prefix. This is fast, and sometimes true for too many."""
    first = next(iter(wanted), "").removeprefix(_shared_part(wanted))
    return len(tensors) >= len(wanted) and any(key.endswith(first) for key in tensors)


def candidates_in(dicts: Iterable[tuple[str, dict[str, Tensor]]], wanted: State) -> list[Candidate]:
    """`find_candidates` in these dicts of tensors, each with its path in the checkpoint."""
    candidates = []
    outer = _shared_part(wanted)
    most_parts = max((key.count(".") + 1 for key in wanted), default=0)
    for where, tensors in dicts:
        found = [
            (prefix, added)
            for added in dict.fromkeys(("", outer))
            for prefix, _ in Counter(
                key[:cut] for key in tensors for cut in _cuts(key, most_parts) if added + key[cut:] in wanted
            ).most_common(_PREFIXES_TRIED)
        ]
        for prefix, added in found or [("", "")]:
            copy = {added + key[len(prefix) :]: tensors[key] for key in tensors if key.startswith(prefix)}
            candidates.append(Candidate.of(where + prefix, copy, wanted))
    return candidates


def averaged_elsewhere(checkpoint: Mapping[str, Any], taken: Candidate) -> str | None:
    """Return the name of a tensor of a weight average (EMA, SWA) outside the loaded copy, or None.

    Scalars, such as a decay or a number of steps, are not weights and are ignored.
    """
    for where, tensors in tensor_dicts(checkpoint):
        for key, tensor in tensors.items():
            name = where + key
            elsewhere = not (name.startswith(taken.where) and name[len(taken.where) :] in taken.tensors)
            if elsewhere and tensor.ndim and _names_an_average(name):
                return name
    return None


def _difference(tensor: Tensor, like: Tensor) -> str | None:
    if tensor.shape != like.shape:
        return f"file {list(tensor.shape)}, model {list(like.shape)}"
    if like.is_floating_point() and not tensor.is_floating_point():
        return f"file {_dtype(tensor)}, model {_dtype(like)}"
    return None


def _equal(one: Tensor, other: Tensor) -> bool:
    try:
        return one.dtype == other.dtype and torch.equal(one, other)
    except (RuntimeError, NotImplementedError):  # for example tensors without values
        return False


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _names_an_average(name: str) -> bool:
    """Whether a name has the word or camelCase part `ema` or `swa` (not as in `schema`), or `averag` or `shadow`."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return bool(words & {"ema", "swa"}) or bool(re.search("averag|shadow", name.lower()))


def _shared_part(wanted: State) -> str:
    """The first part of all keys, with its dot; empty if they begin with different parts."""
    first = {key.partition(".")[0] for key in wanted}
    return f"{first.pop()}." if len(first) == 1 else ""


def _cuts(key: str, most_parts: int) -> list[int]:
    """Return the possible lengths of a prefix of the key, 0 or up to a dot, that leave at most so many parts."""
    cuts = [len(key)]
    while len(cuts) <= most_parts and cuts[-1] > 0:
        cuts.append(key.rfind(".", 0, cuts[-1] - 1) + 1)
    return cuts[:0:-1]


def tensor_dicts(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Every dict of tensors in the checkpoint, with its path. A `CheckpointError` if there are too many entries.

    Dicts may be shared: a small file can have a dict in very many places.
    """
    waiting: list[tuple[str, Mapping[Any, Any], int]] = [("", checkpoint, 0)]
    entries = 0
    while waiting:
        where, node, depth = waiting.pop()
        entries += len(node)
        if entries > _MOST_ENTRIES:
            raise CheckpointError(
                f"the weights file has more than {_MOST_ENTRIES:,} entries in nested dicts",
                hint="Save only the weights: torch.save(model.state_dict(), path).",
            )
        tensors = {key: item for key, item in node.items() if isinstance(item, Tensor) and not item.is_nested}
        if tensors and all(isinstance(key, str) for key in tensors):
            yield where, _unwrapped(tensors)
        if depth < _DEEPEST_NESTING:
            inner = [
                (f"{where}{shown(key, quote=False)}.", item, depth + 1)
                for key, item in node.items()
                if isinstance(item, Mapping)
            ]
            waiting += reversed(inner)


def _unwrapped(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors without the parts that wrappers add to their keys, unless two keys would become equal."""
    names = {key: ".".join(part for part in key.split(".") if part not in _WRAPPERS) for key in tensors}
    return {names[key]: tensors[key] for key in tensors} if len(set(names.values())) == len(names) else tensors
