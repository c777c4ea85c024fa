"""The classes that Ray Data runs as actors. Each has one client for its life."""

from __future__ import annotations

import os
import time
from typing import Any

from bcos_sdk.errors import BcosError
from bcos_sdk.ray._explainer import Explainer, Loaded
from bcos_sdk.ray._parts import PartWriter
from bcos_sdk.ray._schema import arrow_schema
from bcos_sdk.ray._settings import WorkerSettings
from bcos_sdk.ray._shards import Outcome, Shard
from bcos_sdk.ray._storage import Folder

__all__ = ["BatchWorker", "ShardWorker", "unpacked_error"]


class ShardWorker:
    """From a shard to its outcome. The rows go to the destination, not through Ray.

    An error that ends the run is returned, not raised: Ray would wrap it, and try again what cannot succeed.
    """

    def __init__(self, settings: WorkerSettings, place: str, session: str) -> None:
        self._error: BcosError | None = None
        try:
            self._writer = PartWriter(Explainer(settings), Folder(place), session)
        except BcosError as error:
            self._error = error

    def __call__(self, batch: Any) -> Any:
        import pyarrow as arrow

        outcomes = [self._outcome(text) for text in batch.column("shard").to_pylist()]
        return arrow.Table.from_pylist(outcomes, arrow.schema([("outcome", arrow.string()), ("error", arrow.binary())]))

    def _outcome(self, text: str) -> dict[str, Any]:
        began, cpu = time.time(), time.process_time()
        try:
            if self._error is not None:
                raise self._error
            outcome = self._writer.process(Shard.from_json(text))
        except BcosError as error:
            return {"outcome": Outcome().to_json(), "error": _packed_error(error)}
        outcome.began, outcome.seconds = began, time.time() - began
        outcome.cpu_seconds = time.process_time() - cpu
        return {"outcome": outcome.to_json(), "error": None}


class BatchWorker:
    """From a batch with contents and paths of images to their rows."""

    def __init__(self, settings: WorkerSettings, contents: str, path: str) -> None:
        self._columns = contents, path
        self._settings = settings
        self._explainer: Explainer | None = None

    def __call__(self, batch: Any) -> Any:
        import pyarrow as arrow

        if self._explainer is None:  # not when the actor starts: Ray would start it again and again
            self._explainer = Explainer(self._settings)
        contents, paths = (batch.column(name).to_pylist() for name in self._columns)
        images = (Loaded.of(os.fspath(path), data) for path, data in zip(paths, contents, strict=True))
        return arrow.Table.from_pylist(list(self._explainer.rows(images)), arrow_schema())


def _packed_error(error: BcosError) -> bytes:
    import pickle

    error.__traceback__ = error.__cause__ = error.__context__ = None
    return pickle.dumps(error)


def unpacked_error(packed: bytes) -> BcosError:
    """The error that a worker of this run returned."""
    import pickle

    error = pickle.loads(packed)  # noqa: S301 - Ray itself unpickles what its workers return
    assert isinstance(error, BcosError)
    return error
