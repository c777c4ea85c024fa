"""From the contents of images to rows, in one process: the heart of every worker, and of a run without Ray."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

import bcos_sdk
from bcos_sdk.client import Client
from bcos_sdk.errors import ClusterError, UnreadableImageError, shown
from bcos_sdk.images import ImageSource, source_path
from bcos_sdk.limits import Limits
from bcos_sdk.ray._places import is_url
from bcos_sdk.ray._rows import row_of
from bcos_sdk.ray._settings import WorkerSettings
from bcos_sdk.ray._storage import read_bytes
from bcos_sdk.results import Failure, Result

__all__ = ["Explainer", "Loaded", "load"]

Item = TypeVar("Item")
Made = TypeVar("Made")

_READERS = 4


class _Named(bytes):
    """The contents of a file. The client takes `name` for the source of its result."""

    name: str


@dataclass(frozen=True)
class Loaded:
    """An image that was read. `image` is what the client gets: contents, or a path that it cannot read either."""

    path: str | None
    """None if a row of a data set has no path."""
    sha256: str | None
    image: ImageSource | Failure

    @classmethod
    def of_cells(cls, path: Any, contents: Any) -> Self:
        """An image from two cells of a data set. If a cell has another type, its result is a failure."""
        if not isinstance(path, (str, os.PathLike)):
            reason = f"a row of the data set has no path: expected text, not {shown(path)}"
        elif not isinstance(contents, bytes):
            reason = f"{path} has no contents: expected the bytes of a file, not {shown(contents)}"
        else:
            return cls.of(os.fspath(path), contents)
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        hint = "Check the columns of the data set that `path` and `contents` name; the other rows are not affected."
        return cls(name, None, Failure.of(UnreadableImageError(reason, source=name, hint=hint), name or ""))

    @classmethod
    def of(cls, path: str, contents: bytes) -> Self:
        """An image from its contents."""
        named = _Named(contents)
        named.name = path
        return cls(path, sha256(contents).hexdigest(), named)


def load(path: str, limits: Limits) -> Loaded:
    """Read an image. What cannot be read has no hash, and its result is a failure with the error of one machine."""
    if is_url(path):
        try:
            contents = read_bytes(path, limits.bytes)
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            reason = f"there is no file {path}" if missing else f"cannot read {path}: {error}"
            return Loaded(path, None, Failure.of(UnreadableImageError(reason, source=path), path))
        loaded = Loaded.of(path, contents)
        return Loaded(path, None, loaded.image) if len(contents) > limits.bytes else loaded
    place = source_path(path)
    try:
        if not place.is_file() or place.stat().st_size > limits.bytes:
            return Loaded(path, None, place)
        return Loaded.of(path, place.read_bytes())
    except (OSError, ValueError):
        return Loaded(path, None, place)


class _ReadAhead:
    """Applies a function to items in threads, a few items ahead of who consumes the results, in order."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(_READERS, "bcos-sdk-reader")

    def map(self, function: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        waiting: deque[Future[Made]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(function, item))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Explainer:
    """`with Explainer(settings) as explainer:` a client, and the rows of what it returns."""

    def __init__(self, settings: WorkerSettings) -> None:
        if settings.version != bcos_sdk.__version__:
            raise ClusterError(
                f"a worker has bcos-sdk {bcos_sdk.__version__}, and this run was started with {settings.version}",
                hint="Install the same version on all machines of the cluster.",
            )
        self.settings = settings
        self.limits = settings.limits
        delivery = settings.delivery
        self.client = Client(delivery.folder(), sha256=delivery.sha256, fixed_batch=True, **settings.client)
        self.device = self.client.device
        self._ahead = _ReadAhead(2 * self.client.max_batch)

    def close(self) -> None:
        """Close the client."""
        self._ahead.close()
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hashes(self, paths: Iterable[str]) -> Iterator[str | None]:
        """The hash of each file, in order; None if it cannot be read."""
        return (image.sha256 for image in self._read(paths))

    def rows_of(self, paths: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The row of each image, in order."""
        return self.rows(self._read(paths))

    def rows_of_contents(self, cells: Iterable[tuple[Any, Any]]) -> Iterator[dict[str, Any]]:
        """The row of each path with the contents of its file, in order."""
        return self.rows(Loaded.of_cells(path, contents) for path, contents in cells)

    def _read(self, paths: Iterable[str]) -> Iterator[Loaded]:
        return self._ahead.map(partial(load, limits=self.limits), paths)

    def rows(self, images: Iterable[Loaded]) -> Iterator[dict[str, Any]]:
        """The row of each image, in order. Images are taken a few batches ahead of the rows."""
        waiting: deque[Loaded] = deque()

        def readable() -> Iterator[ImageSource]:
            for image in images:
                waiting.append(image)
                if not isinstance(image.image, Failure):
                    yield image.image

        for result in self._results(readable()):
            yield from self._failed(waiting)
            yield self._row(waiting.popleft(), result)
        yield from self._failed(waiting)

    def _failed(self, waiting: deque[Loaded]) -> Iterator[dict[str, Any]]:
        """The rows of the first images, as long as these could not be read."""
        while waiting and isinstance(failure := waiting[0].image, Failure):
            yield self._row(waiting.popleft(), failure)

    def _results(self, images: Iterable[ImageSource]) -> Iterator[Result]:
        question = self.settings.question
        if not question.explain:
            return self.client.predict_stream(images, top_k=question.top_k)
        return self.client.explain_stream(
            images, targets=question.targets, top_k=question.top_k, weights="rgba" in question.pictures
        )

    def _row(self, image: Loaded, result: Result) -> dict[str, Any]:
        question = self.settings.question
        row = row_of(
            result,
            image_sha256=image.sha256,
            device=self.device,
            work=self.settings.work,
            maps=question.maps,
            pictures=question.pictures,
        )
        return row if image.path is not None else row | {"path": None}
