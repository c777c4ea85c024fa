"""The classes that Ray Data runs as actors. Each has one client for its life."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from bcos_sdk._logs import log
from bcos_sdk._private_folders import private_cache
from bcos_sdk.errors import BcosError
from bcos_sdk.ray._alone import LoneExplainer
from bcos_sdk.ray._attempts import Attempt, Attempts
from bcos_sdk.ray._explainer import Explainer
from bcos_sdk.ray._parts import PartWriter, has_crashed
from bcos_sdk.ray._schema import arrow_schema
from bcos_sdk.ray._settings import WorkerSettings
from bcos_sdk.ray._shards import Outcome, Shard
from bcos_sdk.ray._storage import Folder

__all__ = ["BatchWorker", "ShardWorker", "unpacked_error"]


class _Client:
    """The client of an actor. It opens with the first images: a crash of it is then counted as one of the attempt.

    Were it opened when the actor starts, Ray would start the actor again and again.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._explainer: Explainer | None = None

    @contextmanager
    def explainer(self, attempt: Attempt, *, alone: bool = False) -> Iterator[Explainer | LoneExplainer]:
        """What explains the images of this attempt: the client, or a process for one image after the other."""
        if attempt.alone or alone:
            self._close()
            with LoneExplainer(self._settings, attempt) as lone:
                yield lone
            return
        if self._explainer is None:
            self._explainer = Explainer(self._settings)
        yield self._explainer

    def _close(self) -> None:
        """Free the memory of the client."""
        explainer, self._explainer = self._explainer, None
        if explainer is not None:
            explainer.close()


class ShardWorker:
    """From a shard to its outcome. The rows go to the destination, not through Ray.

    An error that ends the run is returned, not raised: Ray would wrap it, and try again what cannot succeed.
    """

    def __init__(self, settings: WorkerSettings, place: str, session: str) -> None:
        self._client = _Client(settings)
        self._place = place
        self._session = session

    def __call__(self, batch: Any) -> Any:
        import pyarrow as arrow

        outcomes = [self._outcome(Shard.from_json(text)) for text in batch.column("shard").to_pylist()]
        return arrow.Table.from_pylist(outcomes, arrow.schema([("outcome", arrow.string()), ("error", arrow.binary())]))

    def _outcome(self, shard: Shard) -> dict[str, Any]:
        try:
            outcome = self._process(shard)
        except BcosError as error:
            return {"outcome": Outcome().to_json(), "error": _packed_error(error)}
        return {"outcome": outcome.to_json(), "error": None}

    def _process(self, shard: Shard) -> Outcome:
        folder = Folder(self._place)
        with Attempts(folder, self._session).counted(shard.file) as attempt:
            alone = has_crashed(folder, shard)
            with self._client.explainer(attempt, alone=alone) as explainer:
                began, cpu = time.time(), time.process_time()
                outcome = PartWriter(explainer, folder, self._session).process(shard)
        outcome.began, outcome.seconds = began, time.time() - began
        outcome.cpu_seconds = time.process_time() - cpu
        return outcome


class BatchWorker:
    """From a batch with contents and paths of images to their rows.

    Attempts are counted on each machine: the destination is unknown here.
    """

    def __init__(self, settings: WorkerSettings, contents: str, path: str, session: str) -> None:
        self._columns = contents, path
        self._client = _Client(settings)
        self._session = session
        self._notes = Folder(str(_folder_for_notes()))

    def __call__(self, batch: Any) -> Any:
        import pyarrow as arrow

        contents, paths = (batch.column(name).to_pylist() for name in self._columns)
        name = sha256(repr(paths).encode("utf-8", "backslashreplace")).hexdigest()
        with (
            Attempts(self._notes, self._session).counted(name) as attempt,
            self._client.explainer(attempt) as explainer,
        ):
            rows = list(explainer.rows_of_contents(zip(paths, contents, strict=True)))
        return arrow.Table.from_pylist(rows, arrow_schema())


def _folder_for_notes() -> Path:
    """A folder that an actor finds again when Ray has started it again, if this machine has a cache."""
    try:
        folder = private_cache("attempts")
        tempfile.TemporaryFile(dir=folder).close()  # whether it can be written
    except (OSError, BcosError) as error:
        log.warning("an image that ends its worker will not be found: %s", error)
        return Path(tempfile.mkdtemp(prefix="bcos-sdk-attempts-"))
    return folder


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
