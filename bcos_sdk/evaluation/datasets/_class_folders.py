"""A folder with one folder of images per class, as ImageNet is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bcos_sdk.evaluation.datasets._dataset import SUFFIXES, Dataset, LabelMatcher, Sample

__all__ = ["read_class_folders"]


def read_class_folders(folder: Path, labels: Sequence[str], masks: Path | None) -> Dataset:
    """The images of every class folder. `masks` has the same folders, with the masks of the images as .png.

    A folder is named by a label or an index. If no folder is, and there are as many folders as classes, the folders in
    alphabetical order are the classes, as with the WordNet names of ImageNet.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    matcher = LabelMatcher(labels)
    notes: tuple[str, ...] = ()
    if len(names) == len(labels) and all(matcher.find(name) is None for name in names):
        classes = {name: index for index, name in enumerate(names)}
        notes = (f"no folder is named like a label: {names[0]}, … are taken as classes 0, … in alphabetical order",)
    else:
        classes = matcher.find_all(names, folder)
    samples = [
        Sample(path.relative_to(folder).as_posix(), classes[name], path, _mask_of(path, folder, masks))
        for name in names
        for path in _images(folder / name)
    ]
    return Dataset("class folders", tuple(samples), notes)


def _images(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            if Path(file).suffix.lower() in SUFFIXES and not file.startswith("."):
                yield Path(parent) / file


def _mask_of(path: Path, folder: Path, masks: Path | None) -> Path | None:
    mask = None if masks is None else (masks / path.relative_to(folder)).with_suffix(".png")
    return mask if mask is not None and mask.is_file() else None
