"""The output folder of a run: pictures, results.jsonl, report page. Pictures and page are written atomically."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from bcos_sdk.cli._drawings import Artist, output_error
from bcos_sdk.cli._image_files import ImageFile
from bcos_sdk.cli._journal import Journal
from bcos_sdk.cli._report import report_entry, write_report
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["Output", "OutputOptions", "Result"]

Result: TypeAlias = "Prediction | Explained | Failure"
_KINDS: dict[str, type[Prediction] | type[Explained] | type[Failure]] = {
    kind.__name__: kind for kind in (Prediction, Explained, Failure)
}


@dataclass(frozen=True)
class OutputOptions:
    """The folder, and what is written to it besides results.jsonl."""

    folder: Path
    explained: bool = False
    pictures: tuple[str, ...] = ()
    report: bool = False
    resume: bool = False


class Output:
    """`with Output(options, artist) as output:` write each result. `resume` keeps the results of an earlier run."""

    def __init__(self, options: OutputOptions, artist: Artist) -> None:
        self._options = options
        self._artist = artist
        self._model = f"{artist.manifest.model.name} {artist.manifest.model.weights_sha256[:16]}"
        self._results = Journal(options.folder / "results.jsonl", keep=options.resume)
        self._report = Journal(options.folder / ".report.jsonl", keep=options.resume)
        self._stack = ExitStack()

    @property
    def folder(self) -> Path:
        return self._options.folder

    @property
    def report_wanted(self) -> bool:
        return self._options.report

    @property
    def weights_wanted(self) -> bool:
        """Whether the pictures or files need W(x). It is large, so it is fetched only then."""
        return self._options.report or bool({"rgba", "npz"} & set(self._options.pictures))

    def __enter__(self) -> Output:
        try:
            self._options.folder.mkdir(parents=True, exist_ok=True)
            self._stack.enter_context(self._results)
            if self._options.report:
                self._stack.enter_context(self._report)
        except OSError as error:
            raise output_error(self._options.folder, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def finished(self) -> set[str]:
        """Return the names of the images that need no new run: same model, and all requested outputs exist."""
        if not self._options.resume:
            return set()
        drawn = {record["name"] for record in self._report.records()} if self._options.report else None
        kind = Explained.__name__ if self._options.explained else Prediction.__name__
        return {
            record["name"]
            for record in self._results.records()
            if record["kind"] == kind
            and record["model"] == self._model
            and set(self._options.pictures) <= {_picture_kind(file) for file in record["files"]}
            and (drawn is None or record["name"] in drawn)
        }

    def write(self, image: ImageFile, result: Result) -> None:
        """Write the pictures, then the record, so that the files of each record exist."""
        files: list[str] = []
        try:
            if isinstance(result, Explained):
                stem = self._options.folder / image.name
                files = self._artist.save(result, self._options.pictures, stem)
            if self._options.report:
                self._report.append(image.name, report_entry(image.path, result, self._artist))
            document = json.loads(result.to_json(arrays="omit"))
            record = {"kind": type(result).__name__, "model": self._model, "files": files, "result": document}
            self._results.append(image.name, record)
        except OSError as error:
            raise output_error(self._options.folder, error) from error

    def results(self) -> Iterator[Result]:
        """Yield all recorded results, including those of earlier runs."""
        for record in self._results.records():
            yield _KINDS[record["kind"]].model_validate(record["result"])

    def close_report(self, title: str) -> None:
        """Write the report page of all recorded results."""
        page = self.folder / "report.html"
        if self._options.report:
            try:
                write_report(page, title, self._report.records())
            except OSError as error:
                raise output_error(page, error) from error


def _picture_kind(file: str) -> str:
    """Return the kind of a file: "overlay" for "a.jpg.2.overlay.png", "npz" for "a.jpg.npz"."""
    return file.removesuffix(".png").rpartition(".")[2]
