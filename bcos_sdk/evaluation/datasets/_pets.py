"""Oxford-IIIT Pet as its authors distribute it: images/, annotations/test.txt, annotations/trimaps/.

The built-in model has a split of its own: lines 1, 4, 7, … of test.txt are held out, and it was trained on all other
photographs of trainval.txt and test.txt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bcos_sdk._untrusted import read_bounded, typed_errors
from bcos_sdk.bundle import PETS_MODEL
from bcos_sdk.errors import InputError
from bcos_sdk.evaluation.datasets._dataset import Dataset, LabelMatcher, Sample

__all__ = ["HELD_OUT", "is_pets", "pets_split", "read_pets"]

HELD_OUT = "held-out"
SPLITS = ("test", "trainval", "list", HELD_OUT)
_HELD_OUT_EVERY = 3
_SPECIES = ("cat", "dog")
_LARGEST = 16 << 20

Row = tuple[str, int]
"""Name, and species: 1 cat, 2 dog."""


def is_pets(folder: Path) -> bool:
    return (folder / "annotations" / "list.txt").is_file() and (folder / "images").is_dir()


def pets_split(annotations: Path, split: str) -> list[Row]:
    """The photographs of a split, in its order. "held-out" is every third line of test.txt from the first.

    A line of a split is "Abyssinian_100 1 1 1": name, breed from 1, species (1 cat, 2 dog), breed of that species.
    """
    if split not in SPLITS:
        raise InputError(f"the split is {split!r}", source=split, hint=f"Choose from {', '.join(SPLITS)}.")
    file = annotations / f"{'test' if split == HELD_OUT else split}.txt"
    hint = "Unpack annotations.tar.gz of the data set again."
    with typed_errors(lambda reason: InputError(f"cannot read {file}: {reason}", source=str(file), hint=hint)):
        lines = [line.split() for line in read_bounded(file, _LARGEST).decode("utf-8").splitlines()]
        rows = [(line[0], int(line[2])) for line in lines if line and not line[0].startswith("#")]
        if odd := [name for name, species in rows if species not in (1, 2)]:
            raise ValueError(f"the species of {odd[0]} is neither 1 nor 2")
    return rows[::_HELD_OUT_EVERY] if split == HELD_OUT else rows


def read_pets(folder: Path, labels: Sequence[str], split: str) -> Dataset:
    """The photographs of a split with their trimaps. A model with the labels cat and dog is given the species;
    any other the breed, as "Abyssinian" or "Abyssinian cat".
    """
    rows = pets_split(folder / "annotations", split)
    by_species = {label.strip().casefold() for label in labels} == set(_SPECIES)
    matcher = LabelMatcher(labels)
    classes = [
        _SPECIES[species - 1] if by_species else _breed(name, _SPECIES[species - 1], matcher) for name, species in rows
    ]
    index_of = matcher.find_all(dict.fromkeys(classes), folder / "annotations")
    samples = [
        Sample(name, index_of[one], folder / "images" / f"{name}.jpg", _trimap(folder, name))
        for (name, _), one in zip(rows, classes, strict=True)
    ]
    seen = {PETS_MODEL: _trained_on(folder / "annotations", split, rows)}
    return Dataset(f"Oxford-IIIT Pet, {split}", tuple(samples), trained_on=seen)


def _trained_on(annotations: Path, split: str, rows: Sequence[Row]) -> int:
    """How many of the photographs the built-in model was trained on."""
    if split in ("trainval", HELD_OUT) or not (annotations / "test.txt").is_file():
        return len(rows) if split == "trainval" else 0
    return len({name for name, _ in rows} - {name for name, _ in pets_split(annotations, HELD_OUT)})


def _breed(name: str, species: str, matcher: LabelMatcher) -> str:
    """The breed, with its species if only that is a label: "Abyssinian" or "Abyssinian cat"."""
    breed = name.rpartition("_")[0]
    full = f"{breed} {species}"
    return full if matcher.find(breed) is None and matcher.find(full) is not None else breed


def _trimap(folder: Path, name: str) -> Path | None:
    path = folder / "annotations" / "trimaps" / f"{name}.png"
    return path if path.is_file() else None
