"""Choose the layout of a data set by its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bcos_sdk.errors import InputError
from bcos_sdk.evaluation.datasets._cifar10 import BINARY, PYTHON, read_cifar10
from bcos_sdk.evaluation.datasets._class_folders import read_class_folders
from bcos_sdk.evaluation.datasets._csv_list import read_csv_list
from bcos_sdk.evaluation.datasets._dataset import Dataset
from bcos_sdk.evaluation.datasets._pets import is_pets, read_pets

__all__ = ["LAYOUTS", "open_dataset"]

LAYOUTS = (
    "a folder with one folder of images per class, a CSV file path,label[,mask], the unpacked CIFAR-10 (binary or "
    "Python version), or Oxford-IIIT Pet (images/ and annotations/)"
)


def open_dataset(path: Path, labels: Sequence[str], *, masks: Path | None = None, split: str | None = None) -> Dataset:
    """The labelled images at `path` for a model with these labels.

    `split` is that of Oxford-IIIT Pet: test (the default), trainval, list, or held-out. Other data sets have none.
    """
    try:
        dataset = _read(path, labels, masks, split)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", source=str(path), hint=f"Pass {LAYOUTS}.") from error
    if not dataset.samples:
        raise InputError(f"found no images in {path}", source=str(path), hint=f"Pass {LAYOUTS}.")
    return dataset


def _read(path: Path, labels: Sequence[str], masks: Path | None, split: str | None) -> Dataset:
    if is_pets(path):
        return read_pets(path, labels, split or "test")
    dataset = _without_splits(path, labels, masks)
    if split is not None:
        raise InputError(
            f"the split {split!r} was asked for, but {path} is {dataset.layout}, which has no splits",
            source=str(path),
            hint="Only Oxford-IIIT Pet (images/ and annotations/) has splits: leave --split out.",
        )
    return dataset


def _without_splits(path: Path, labels: Sequence[str], masks: Path | None) -> Dataset:
    if path.suffix.lower() in (".csv", ".txt") and not path.is_dir():
        return read_csv_list(path, labels, masks)
    if path.suffix == ".bin" or (path / BINARY).is_file() or (path / PYTHON).is_file():
        return read_cifar10(path, labels)
    return read_class_folders(path, labels, masks)
