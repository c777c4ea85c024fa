"""CIFAR-10 as its authors distribute it: the binary version and the Python version, test images only.

The Python version consists of pickles, which can run code. They are read with an unpickler that knows only what these
files contain: numpy arrays of bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._untrusted import read_bounded, typed_errors
from bcos_sdk.bundle import BUILTIN_MODEL
from bcos_sdk.errors import InputError
from bcos_sdk.evaluation.datasets._dataset import Dataset, LabelMatcher, Sample

__all__ = ["BINARY", "PYTHON", "read_cifar10"]

BINARY, PYTHON = "test_batch.bin", "test_batch"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PIXELS = 3 * 32 * 32
_LARGEST = 64 << 20
_HINT = "Download cifar-10-binary.tar.gz or cifar-10-python.tar.gz again, and unpack it."


def read_cifar10(folder: Path, labels: Sequence[str]) -> Dataset:
    """The test images of `test_batch.bin` or of the pickle `test_batch`. A single file can be named too."""
    file = folder if folder.is_file() else folder / (BINARY if (folder / BINARY).is_file() else PYTHON)
    with typed_errors(lambda reason: InputError(f"cannot read {file}: {reason}", source=str(file), hint=_HINT)):
        contents = read_bounded(file, _LARGEST)
        classes, pixels = _from_binary(contents) if file.suffix == ".bin" else _from_pickle(contents)
    of_model = LabelMatcher(labels).find_all(NAMES, file)
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    samples = [
        Sample(f"{file.name}/{index:05}", of_model[NAMES[int(one)]], images[index]) for index, one in enumerate(classes)
    ]
    seen = len(samples) if file.name.startswith("data_batch") else 0
    return Dataset("CIFAR-10", tuple(samples), trained_on={BUILTIN_MODEL: seen})


def _from_binary(contents: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    if not contents or len(contents) % (1 + _PIXELS):
        raise ValueError(f"it has {len(contents):,} bytes, expected a multiple of {1 + _PIXELS:,}")
    rows = np.frombuffer(contents, np.uint8).reshape(-1, 1 + _PIXELS)
    return _checked(rows[:, 0], rows[:, 1:])


def _from_pickle(contents: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    content = _ArraysOnly(io.BytesIO(contents), encoding="bytes").load()
    fields = {key.decode("ascii") if isinstance(key, bytes) else key: value for key, value in dict(content).items()}
    return _checked(np.asarray(fields["labels"]), np.asarray(fields["data"]))


def _checked(classes: npt.NDArray[Any], pixels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape != (len(classes), _PIXELS):
        raise ValueError(f"its images are {pixels.dtype} {pixels.shape}, expected uint8 ({len(classes)}, {_PIXELS})")
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= len(NAMES):
        raise ValueError("its labels are not numbers from 0 to 9")
    return classes, pixels


class _ArraysOnly(pickle.Unpickler):
    """Loads numbers, texts, lists, dicts and plain numpy arrays. Any other name in a pickle is an error."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _empty_array
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # bytes in pickles of protocol 2 that Python 3 wrote
            return _encode
        raise ValueError(f"its pickle uses {module}.{name}, which no CIFAR-10 file does")


def _empty_array(kind: Any, shape: Any, code: Any) -> npt.NDArray[Any]:
    """What numpy's own `_reconstruct` makes: an array that the pickle then fills."""
    if kind is not np.ndarray or shape != (0,) or code not in (b"b", "b"):
        raise ValueError("its pickle has an array of an unknown kind")
    return np.empty((0,), np.int8)


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise ValueError("its pickle has a text in an unknown encoding")
    return text.encode("latin1")
