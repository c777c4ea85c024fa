"""Read files that a stranger may have written. Whatever is wrong with one is a `ValueError` or the error of the caller.

Parsers raise many types for hostile content: RecursionError, OverflowError, MemoryError, TokenError and more. They are
caught here, in one place.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bcos_sdk._files import open_without_blocking
from bcos_sdk.errors import BcosError, first_faults, shown

__all__ = ["open_to_read", "parse_json", "read_array", "read_arrays", "read_bounded", "typed_errors"]

_MOST_MEMBERS = 64
_HEADER = 4096
"""Bytes of an array file besides its values."""


@contextmanager
def typed_errors(error_for: Callable[[str], BcosError]) -> Iterator[None]:
    """Turn every error inside that has no type of this package into `error_for(reason)`."""
    try:
        yield
    except BcosError:
        raise
    except Exception as error:
        raise error_for(_reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return first_faults(error)
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"it has no entry {shown(error.args[0]) if error.args else ''}".rstrip()
    return shown(str(error), quote=False) or type(error).__name__


def open_to_read(path: Path, *, pipes: bool = False) -> IO[bytes]:
    """Open a regular file to read; an `OSError` for a device, and without `pipes` also for a pipe.

    A pipe that nobody writes to counts as empty. Opening it does not block.
    """
    file = open_without_blocking(path)
    try:
        kind = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(kind) and not (pipes and (stat.S_ISFIFO(kind) or file.isatty())):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(file.fileno(), True)
    except BaseException:
        file.close()
        raise
    return file


def read_bounded(path: Path, largest: int, *, pipes: bool = False) -> bytes:
    """The contents of a file of at most `largest` bytes. A larger one raises a `ValueError`."""
    with open_to_read(path, pipes=pipes) as file:
        contents = file.read(largest + 1)
    if len(contents) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return contents


def parse_json(contents: bytes | str) -> Any:
    """The document in a JSON text, or a `ValueError`. Half of a surrogate pair is refused: it cannot be written."""
    text = contents if isinstance(contents, str) else contents.decode("utf-8")
    try:
        document = json.loads(text)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which is no text") from None
    return document


def read_arrays(file: IO[bytes], *, largest: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file, each of at most `largest` bytes. Anything else in it is a `ValueError`.

    No pickle is loaded. The sizes are checked before an array is unpacked.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > _MOST_MEMBERS or any(member.file_size > largest + _HEADER for member in members):
                raise ValueError("its arrays are too many or too large")
            return {
                member.filename.removesuffix(".npy"): read_array(archive.read(member), largest=largest)
                for member in members
                if member.filename.endswith(".npy")
            }
    except (MemoryError, ValueError):
        raise
    except Exception as error:  # zipfile and numpy raise many types for damaged files
        raise ValueError(_reason(error)) from error


def read_array(contents: bytes, *, largest: int) -> npt.NDArray[Any]:
    """The array of a .npy file, of at most `largest` bytes. Anything else is a `ValueError`. No pickle is loaded."""
    array = np.lib.format.read_array(io.BytesIO(contents), allow_pickle=False)
    if array.nbytes > largest:  # an array with an axis of 0 bytes per value can claim any shape
        raise ValueError("its arrays are too many or too large")
    return array
