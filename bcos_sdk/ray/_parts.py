"""One Parquet file of a run: read what it has, compare its images with it, and write it again if something changed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bcos_sdk.errors import OutputError, WorkerCrashedError
from bcos_sdk.ray._alone import LoneExplainer
from bcos_sdk.ray._explainer import Explainer
from bcos_sdk.ray._record import check_session
from bcos_sdk.ray._rows import FAILED
from bcos_sdk.ray._schema import arrow_schema
from bcos_sdk.ray._shards import Outcome, Shard
from bcos_sdk.ray._storage import Folder
from bcos_sdk.results import Work

__all__ = ["PartWriter", "has_crashed", "paths_in", "rows_in", "write_rows"]

_ROWS_PER_GROUP = 64
_COMPRESSION = "zstd"
_COMPARED = ["path", "image_sha256", "status", "work"]


def paths_in(folder: Folder, file: str) -> list[str]:
    """The paths of the images in a file, in its order."""
    opened = folder.parquet(file)
    found: list[str] = [] if opened is None else opened.read(columns=["path"]).column("path").to_pylist()
    return found


def rows_in(folder: Folder, file: str, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file, read in small groups; none if there is no such file."""
    opened = folder.parquet(file)
    if opened is None:
        return
    with opened:
        for batch in opened.iter_batches(batch_size=_ROWS_PER_GROUP, columns=columns):
            yield from batch.to_pylist()


def has_crashed(folder: Folder, shard: Shard) -> bool:
    """Whether an earlier run has found that an image of the shard ends its process."""
    recorded = rows_in(folder, shard.file, ["path", "error_code"])
    killers = {row["path"] for row in recorded if row["error_code"] == WorkerCrashedError.code}
    return bool(killers) and not killers.isdisjoint(shard.images)


class PartWriter:
    """Brings the file of each shard up to date. A file that is complete and still right is not written again."""

    def __init__(self, explainer: Explainer | LoneExplainer, folder: Folder, session: str) -> None:
        self._explainer = explainer
        self._folder = folder
        self._session = session
        self._work = Work.model_validate_json(explainer.settings.work)

    def process(self, shard: Shard) -> Outcome:
        """Explain the images of a shard that its file does not have, or has from another image or another work."""
        outcome = Outcome(device=self._explainer.device)
        recorded = {row["path"]: row for row in rows_in(self._folder, shard.file, _COMPARED)}
        again = self._to_repeat([path for path in shard.images if path in recorded], recorded, outcome)
        new = [path for path in shard.images if path not in recorded]
        outcome.kept = len(shard.images) - len(new) - len(again)
        if again or new or shard.drop:
            self._write(shard, again, new, outcome)
        return outcome

    def _to_repeat(self, paths: list[str], recorded: dict[str, Any], outcome: Outcome) -> set[str]:
        """The recorded images whose result would not be the recorded one. Their number by reason goes to `outcome`."""
        reasons = {path: self._reason_to_repeat(recorded[path]) for path in paths}
        unread = [path for path in paths if reasons[path] is None]
        for path, sha256 in zip(unread, self._explainer.hashes(unread), strict=True):
            if sha256 != recorded[path]["image_sha256"]:
                reasons[path] = "the file changed"
        again = {path: reason for path, reason in reasons.items() if reason is not None}
        outcome.repeated = dict(Counter(outcome.repeated) + Counter(again.values()))
        return set(again)

    def _reason_to_repeat(self, row: dict[str, Any]) -> str | None:
        """Why an image is done again, by its row; None if its file decides. The reasons are those of one machine."""
        if row["status"] == FAILED:
            return "failed before"
        if row["image_sha256"] is None:
            return "not finished"
        return self._work.difference(Work.model_validate_json(row["work"]))

    def _write(self, shard: Shard, again: set[str], new: list[str], outcome: Outcome) -> None:
        """Write the file: the rows that stay in their order, then those that are done again, then the new ones."""
        gone = {*again, *shard.drop}
        kept = (row for row in rows_in(self._folder, shard.file) if row["path"] not in gone)
        made = self._made([*(path for path in shard.images if path in again), *new], outcome)
        with tempfile.TemporaryDirectory(prefix="bcos-sdk-part-") as folder:
            aside = Path(folder) / shard.file
            count = write_rows(aside, chain(kept, made))
            check_session(self._folder, self._session)
            if count:
                self._folder.upload(aside, shard.file)
            else:
                self._folder.remove(shard.file)

    def _made(self, paths: Iterable[str], outcome: Outcome) -> Iterator[dict[str, Any]]:
        for row in self._explainer.rows_of(paths):
            if row["status"] == FAILED:
                outcome.failed(row["error_code"], row["error_message"])
            else:
                outcome.done += 1
            yield row


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write rows to a Parquet file of this machine, a few at a time, and return their number."""
    import pyarrow as arrow
    from pyarrow import parquet

    schema = arrow_schema()
    count = 0
    rows = iter(rows)
    try:
        with parquet.ParquetWriter(path, schema, compression=_COMPRESSION) as writer:
            while group := list(islice(rows, _ROWS_PER_GROUP)):
                writer.write_table(arrow.Table.from_pylist(group, schema))
                count += len(group)
    except OSError as error:
        raise OutputError(
            f"cannot write a temporary file {path}: {error.strerror or error}",
            source=str(path),
            hint="Free some space in the folder for temporary files, or set TMPDIR.",
        ) from error
    return count
