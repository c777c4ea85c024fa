"""Files on this machine, in S3, or anywhere that fsspec reaches: list, read, write whole files, remove."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from bcos_sdk._extras import require
from bcos_sdk._files import atomic_write
from bcos_sdk.errors import InputError, OutputError
from bcos_sdk.ray._places import is_url, local_path, parts_of_url

__all__ = ["Folder", "location", "read_bytes"]

_BY_ARROW = {"s3": "s3", "gs": "gs", "gcs": "gs"}
"""Schemes that pyarrow reads itself. The others are left to fsspec."""
_PUT_AT_ONCE = {"s3", "gcs"}
"""Stores in which a file appears when it is complete. In others it is written aside and renamed."""
_CHUNK = 8 << 20
_TRIES = 4
_PAUSE_SECONDS = 0.5


def read_bytes(url: str, largest: int) -> bytes:
    """The contents of a file in a store, at most one byte more than `largest`. An OSError says why it cannot be read.

    A request that fails is made again, unless there is no such file or it may not be read.
    """
    files, path = location(url)
    attempt = 0
    while True:
        attempt += 1
        try:
            with files.open_input_file(path) as file:
                contents: bytes = file.read(min(file.size(), largest + 1))  # pyarrow allocates what is asked for
                return contents
        except OSError as error:
            if attempt == _TRIES or isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
                raise
        time.sleep(_PAUSE_SECONDS * 2**attempt)


def location(place: str) -> tuple[Any, str]:
    """The file system of pyarrow that has this path or URL, and the path in it."""
    require("pyarrow", purpose="Reading and writing files of a batch")
    from pyarrow.fs import LocalFileSystem

    if not is_url(place):
        return LocalFileSystem(), str(local_path(place).absolute())
    scheme, rest = parts_of_url(place)
    bucket = rest.partition("/")[0]
    if scheme in _BY_ARROW:
        return _arrow_files(_BY_ARROW[scheme], bucket), rest
    return _fsspec_files(scheme, bucket, place), _fsspec_path(place)


@cache
def _arrow_files(scheme: str, bucket: str) -> Any:
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(f"{scheme}://{bucket}/")[0]
    except (OSError, ValueError) as error:
        raise _unreachable(f"{scheme}://{bucket}", error) from error


@cache
def _fsspec_files(scheme: str, bucket: str, place: str) -> Any:
    require("fsspec", purpose=f"{scheme}://")
    import fsspec
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    try:
        return PyFileSystem(FSSpecHandler(fsspec.core.url_to_fs(place)[0]))
    except (ImportError, OSError, ValueError) as error:
        raise _unreachable(f"{scheme}://{bucket}", error) from error


def _fsspec_path(place: str) -> str:
    import fsspec

    path: str = fsspec.core.url_to_fs(place)[1]
    return path


def _unreachable(place: str, error: Exception) -> InputError:
    return InputError(
        f"cannot open {place}: {error}",
        source=place,
        hint="Check the URL, its credentials, and that the package of this store is installed (fsspec names it).",
    )


class Folder:
    """A folder of this machine or of a store. Files in it are written whole or not at all."""

    def __init__(self, place: str) -> None:
        self.place = place if is_url(place) else str(local_path(place).absolute())
        if is_url(place) and parts_of_url(place)[0] in _BY_ARROW and "//" in parts_of_url(place)[1]:
            raise InputError(
                f"{place} has an empty part, two slashes in a row, which pyarrow cannot read or write",
                source=place,
                hint="Pass a URL with single slashes, or copy the objects to names without empty parts.",
            )
        self._files, self._path = location(self.place)
        self._path = self._path.rstrip("/")

    @property
    def local(self) -> Path | None:
        """The folder as a path, if it is on this machine."""
        return None if is_url(self.place) else Path(self._path)

    def files_below(self) -> Iterator[str]:
        """The places of all files in the folder and in folders below it, in the order of their names.

        What is hidden, with a name that begins with a dot, is left out. If the place is a file, it is the only one.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._typed():
            found = self._files.get_file_info(self._path)
            if found.type == FileType.File:
                yield self.place
                return
            if found.type == FileType.NotFound:
                raise InputError(
                    f"there is no {self.place}", source=self.place, hint="Check the URL, and who may read it."
                )
            listed = self._files.get_file_info(FileSelector(self._path, recursive=True))
            begin = len(self._path) + 1
            names = sorted(
                info.path[begin:]
                for info in listed
                if info.type == FileType.File and not any(part.startswith(".") for part in info.path[begin:].split("/"))
            )
        for name in names:
            yield f"{self.place.rstrip('/')}/{name}"

    def names(self) -> list[str]:
        """The names of the files in the folder itself; none if there is no such folder."""
        from pyarrow.fs import FileSelector, FileType

        with self._typed():
            listed = self._files.get_file_info(FileSelector(self._path, allow_not_found=True))
            return sorted(info.base_name for info in listed if info.type == FileType.File)

    def read(self, name: str) -> bytes | None:
        """The contents of a small file; None if there is none."""
        with self._typed():
            try:
                with self._files.open_input_stream(self._inner(name)) as file:
                    contents: bytes = file.read()
                    return contents
            except FileNotFoundError:
                return None

    def write(self, name: str, contents: bytes) -> None:
        """Write a small file."""
        self._put(name, lambda file: file.write(contents))

    def upload(self, source: Path, name: str) -> None:
        """Write a copy of a file of this machine."""
        with source.open("rb") as contents:
            self._put(name, lambda file: shutil.copyfileobj(contents, file, _CHUNK))

    def remove(self, name: str) -> None:
        """Remove a file. It is no error if there is none."""
        with self._typed(), suppress(FileNotFoundError):
            self._files.delete_file(self._inner(name))

    def parquet(self, name: str) -> Any:
        """A file as `pyarrow.parquet.ParquetFile`; None if there is none."""
        from pyarrow import ArrowInvalid, parquet
        from pyarrow.fs import FileType

        with self._typed():
            if self._files.get_file_info(self._inner(name)).type != FileType.File:
                return None
            try:
                return parquet.ParquetFile(self._inner(name), filesystem=self._files)
            except ArrowInvalid as error:
                raise InputError(
                    f"{name} in {self.place} is not a Parquet file: {error}",
                    source=self.place,
                    hint="Remove the file; --resume then does its images again.",
                ) from None

    def _inner(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _put(self, name: str, fill: Callable[[IO[bytes]], Any]) -> None:
        with self._typed():
            if self.local is not None:
                self.local.mkdir(parents=True, exist_ok=True)
                with atomic_write(self.local / name) as partial, partial.open("xb") as file:
                    fill(file)
                return
            aside = name if self._files.type_name in _PUT_AT_ONCE else f".{uuid4().hex}.partial"
            if aside != name:
                self._files.create_dir(self._path, recursive=True)
            with self._files.open_output_stream(self._inner(aside)) as stream:
                fill(stream)
            if aside != name:
                self._files.move(self._inner(aside), self._inner(name))

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn an OSError into an `OutputError`."""
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"cannot use {self.place}: {error.strerror or error}",
                source=self.place,
                hint="Check that it exists, that you may read and write it, and that it has free space. All files "
                "written so far are complete: continue with --resume.",
            ) from error
