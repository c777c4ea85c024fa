"""A data set: named images, each with the class of the model that it shows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import InputError, shown

__all__ = ["SUFFIXES", "Dataset", "LabelMatcher", "Sample"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
_MOST_NAMED = 5


@dataclass(frozen=True)
class Sample:
    """One image, its class, and the file of its mask if there is one."""

    name: str
    """Unique in the data set."""
    label: int
    source: Path | npt.NDArray[np.uint8]
    mask: Path | None = None


@dataclass(frozen=True)
class Dataset:
    """The images of a data set in their order."""

    layout: str
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()
    """What was assumed where the files leave a choice."""
    trained_on: Mapping[str, int] = field(default_factory=dict)
    """How many of the images a built-in model was trained on, by its name."""

    def __post_init__(self) -> None:
        if len({sample.name for sample in self.samples}) != len(self.samples):
            raise InputError("two images of the data set have the same name", hint="List each image once.")

    @property
    def has_masks(self) -> bool:
        return any(sample.mask is not None for sample in self.samples)

    def training_notes(self, *models: str) -> tuple[str, ...]:
        """A warning for each of the models that was trained on some of the images."""
        advice = " Use --split held-out." if self.layout.startswith("Oxford") else ""
        return tuple(
            f"{model} was trained on {self.trained_on[model]:,} of these {len(self.samples):,} images: its figures are "
            f"too high.{advice}"
            for model in dict.fromkeys(models)
            if self.trained_on.get(model)
        )

    @property
    def fingerprint(self) -> str:
        """Equal if names, classes and files are the same: a file counts by its size and its time of change."""
        digest = hashlib.sha256()
        for sample in self.samples:
            digest.update(f"{sample.name}\0{sample.label}\0{_state(sample.source)}\0{_state(sample.mask)}\n".encode())
        return digest.hexdigest()


def _state(source: Path | npt.NDArray[np.uint8] | None) -> str:
    if isinstance(source, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(source).tobytes()).hexdigest()
    try:
        status = None if source is None else source.stat()
    except OSError:
        return "missing"
    return "" if status is None else f"{status.st_size} {status.st_mtime_ns}"


class LabelMatcher:
    """Finds the class of the model that a name in the data set means: a label, a part of it, or an index.

    Case does not matter, and "_" and "-" count as spaces. A label such as "tabby, tabby cat" has two names.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._classes = len(labels)
        self._index_of: dict[str, set[int]] = {}
        for index, label in enumerate(labels):
            for name in {_normal(label), *map(_normal, label.split(","))}:
                self._index_of.setdefault(name, set()).add(index)

    def find(self, name: str) -> int | None:
        """The class, or None if no label or more than one has this name."""
        found = self._index_of.get(_normal(name), set())
        if len(found) == 1:
            return next(iter(found))
        is_index = not found and name.isascii() and name.isdecimal() and len(name) <= 9
        return int(name) if is_index and int(name) < self._classes else None

    def find_all(self, names: Iterable[str], source: Path) -> dict[str, int]:
        """The class of every name, or an `InputError` that lists the names without one."""
        found = {name: self.find(name) for name in names}
        if unknown := [name for name, index in found.items() if index is None]:
            listed = ", ".join(map(shown, unknown[:_MOST_NAMED]))
            raise InputError(
                f"{len(unknown)} of {len(found)} class names of {source} are no label of the model: {listed}",
                source=str(source),
                hint="Name classes as `bcos-sdk models labels` does, or by their index from 0.",
            )
        return {name: index for name, index in found.items() if index is not None}


def _normal(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()
