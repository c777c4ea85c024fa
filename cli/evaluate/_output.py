"""The output folder of an evaluation: the record of finished items, the JSON and the page."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from bcos_sdk._files import atomic_write
from bcos_sdk._untrusted import parse_json, read_bounded
from bcos_sdk.cli._folder_lock import FolderLock
from bcos_sdk.cli._journal import DamageReport, Journal
from bcos_sdk.cli._signals import received_interrupt
from bcos_sdk.errors import OutputError, OutputExistsError
from bcos_sdk.evaluation import Item

__all__ = ["EvaluationFolder", "Part"]

ITEMS, RUN, RESULT, PAGE = "items.jsonl", "run.json", "evaluation.json", "evaluation.html"
_LARGEST = 1 << 20


class EvaluationFolder:
    """Keeps items by key. `with` locks the folder. A finished record is replaced only if `overwrite` says so."""

    def __init__(self, path: Path, work: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
        self.path = path
        self._work = json.loads(json.dumps(work))
        self._resume, self._overwrite = resume, overwrite
        self._lock = FolderLock(path)
        self._journal: Journal[Item] = Journal(path / ITEMS, Item)

    @property
    def result(self) -> Path:
        return self.path / RESULT

    @property
    def page(self) -> Path:
        return self.path / PAGE

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            try:
                self._open()
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise OutputError(
                f"cannot write to {self.path}: {error.strerror}", source=str(self.path), hint="Choose another --out."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()
        self._lock.release()

    def _open(self) -> None:
        run = self.path / RUN
        if run.exists() and not self._overwrite:
            self._check_earlier(run)
            damage = DamageReport(shown=True)
            for _ in self._journal.load(damage.add):
                pass
            damage.end()
            return
        self._journal.clear()
        with atomic_write(run, locked=True) as partial:
            partial.write_text(json.dumps(self._work, indent=1) + "\n", "utf-8")

    def _check_earlier(self, run: Path) -> None:
        if not self._resume:
            raise OutputExistsError(
                f"{self.path} has the record of an earlier evaluation",
                source=str(self.path),
                hint="Use --resume to continue it, --overwrite to replace it, or another --out.",
            )
        try:
            earlier = parse_json(read_bounded(run, _LARGEST))
        except ValueError:
            earlier = None
        if not isinstance(earlier, dict) or earlier != self._work:
            differs = [
                key for key in self._work if not isinstance(earlier, dict) or earlier.get(key) != self._work[key]
            ]
            raise OutputExistsError(
                f"the evaluation recorded in {self.path} cannot be continued: it has another {' and '.join(differs)}",
                source=str(self.path),
                hint="Use --overwrite to replace it, or another --out.",
            )

    def get(self, key: str) -> Item | None:
        item = self._journal.get(key)
        return None if item is None else item.model_copy(update={"name": key.partition("/")[2].partition("/")[2]})

    def put(self, key: str, item: Item) -> None:
        """Write an item. An interrupt by Ctrl-C takes effect after it."""
        try:
            self._journal.append(item.model_copy(update={"name": key}))
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path / ITEMS}: {error.strerror}",
                source=str(self.path),
                hint="Free some space, then use --resume.",
            ) from error
        if (interrupt := received_interrupt()) is not None:
            raise interrupt


class Part:
    """The items of one of the models of an evaluation."""

    def __init__(self, folder: EvaluationFolder, name: str) -> None:
        self._folder, self._name = folder, name

    def get(self, key: str) -> Item | None:
        return self._folder.get(f"{self._name}/{key}")

    def put(self, key: str, item: Item) -> None:
        self._folder.put(f"{self._name}/{key}", item)
