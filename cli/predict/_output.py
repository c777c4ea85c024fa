"""The output folder of a run: pictures, results.jsonl, report page, table. A finished record is never lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType

from bcos_sdk._files import remove_leftovers
from bcos_sdk.cli._folder_lock import FolderLock
from bcos_sdk.cli._journal import DamageReport, Journal
from bcos_sdk.cli._terminal import count_of
from bcos_sdk.cli.predict._announcement import Announcement
from bcos_sdk.cli.predict._content import Content
from bcos_sdk.cli.predict._drawings import Artist, output_error, possible_names
from bcos_sdk.cli.predict._formats import write_parquet
from bcos_sdk.cli.predict._image_files import ImageFile
from bcos_sdk.cli.predict._output_names import REPORT, REPORT_ENTRIES, RESULTS, TABLE, is_output_name
from bcos_sdk.cli.predict._output_options import OutputOptions, Start
from bcos_sdk.cli.predict._plan import EarlierRun, Plan, Task, path_text
from bcos_sdk.cli.predict._report import report_entry, write_report
from bcos_sdk.cli.predict._run_record import ReportLine, Result, RunRecord, file_inside
from bcos_sdk.errors import OutputExistsError
from bcos_sdk.results import Explained, Failure, Work

__all__ = ["Output"]


class Output:
    """`with Output(…) as output:` make a plan, write the result of each task, and finish.

    The folder is locked meanwhile. Nothing of an earlier run is changed before the first result of this run.
    """

    def __init__(self, options: OutputOptions, artist: Artist, work: Work) -> None:
        self._options = options
        self._artist = artist
        self._work = work
        self._lock = FolderLock(options.folder)
        self._results = Journal(self._path(RESULTS), RunRecord)
        self._report = Journal(self._path(REPORT_ENTRIES), ReportLine)
        self._drawn: dict[str, str] = {}  # the key of each image in the report
        self._earlier = EarlierRun(options.folder, self._results, work, self._drawn if options.report else None)
        self._begun = False
        self._waiting: list[tuple[Task, Failure]] = []
        self._announced = Announcement(options.folder)

    @property
    def folder(self) -> Path:
        return self._options.folder

    def __enter__(self) -> Output:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            try:
                self._options.refuse_record()
                self._load()
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise output_error(self.folder, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._results.close()
        self._report.close()
        self._lock.release()

    def plan(self, images: Sequence[ImageFile]) -> Plan:
        """Decide which images have to be processed, and remove what a killed run left where their files go."""
        earlier = self._earlier
        if self._options.start is not Start.RESUME:
            earlier = EarlierRun(self.folder, Journal(self._path(RESULTS), RunRecord), self._work)
        plan = earlier.plan(images)
        names = {*self._earlier.name_of.values(), *(task.name for task in plan.tasks)}
        try:
            self._remove_announced_files()
            if self._options.start is Start.NEW:
                self._refuse_foreign_files(plan)
            for folder in {self.folder, *((self.folder / name).parent for name in names)}:
                remove_leftovers(folder)
        except OSError as error:
            raise output_error(self.folder, error) from error
        return plan

    def write(self, task: Task, content: Content | None, result: Result) -> None:
        """Write the pictures and the record of an image. `content` is that of the file before the client read it.

        With `--overwrite`, failures are kept back until an image has a result: a wrong name on the command line must
        not replace a finished record.
        """
        if self._keeps_earlier_record and isinstance(result, Failure):
            self._waiting.append((task, result))
            return
        try:
            self._begin()
            for failed, failure in self._waiting:
                self._write_one(failed, None, failure)
            self._waiting.clear()
            self._write_one(task, content, result)
        except OSError as error:
            raise output_error(self.folder, error) from error

    def results(self) -> Iterator[Result]:
        """Yield all recorded results, including those of earlier runs."""
        return (record.outcome for record in self._results)

    def _write_one(self, task: Task, content: Content | None, result: Result) -> None:
        """Write the pictures, then the record, so that the files of each record exist.

        The names of the pictures are announced before. If this is killed, the next run removes them.
        """
        folder = PurePosixPath(task.name).parent
        names = self._artist.file_names(result, self._options.pictures, PurePosixPath(task.name).name)
        files = tuple(str(folder / name) for name in names)
        if files:
            self._announced.write(task.name, files)
        self._withdraw(task.name)
        if isinstance(result, Explained):
            self._artist.save(result, self._options.pictures, self.folder / task.name)
        unchanged = content is not None and content.is_still_in(task.path)
        record = RunRecord.of(
            result,
            name=task.name,
            path=path_text(task.path),
            image_sha256=content.sha256 if content is not None and unchanged else None,
            work=self._work,
            files=files,
        )
        if self._options.report:
            entry = report_entry(task.path, result, self._artist)
            self._report.append(ReportLine(name=task.name, key=record.key, entry=entry))
            self._drawn[task.name] = record.key
        self._results.append(record)
        if files:
            self._announced.clear()

    def finish(self) -> None:
        """Write the report page and the table of all recorded results, and leave one line per image in the record."""
        if self._keeps_earlier_record:
            return
        try:
            if self._options.report:
                self._write_report()
            if self._options.table:
                write_parquet(self.results(), self._path(TABLE))
            self._results.compact()
        except OSError as error:
            raise output_error(self.folder, error) from error

    def outdated(self) -> list[str]:
        """The report or the table, if an earlier run wrote it and this run has changed the record but not it."""
        kept = {REPORT: self._options.report, TABLE: self._options.table}
        return [name for name, is_new in kept.items() if self._begun and not is_new and self._path(name).exists()]

    @property
    def _keeps_earlier_record(self) -> bool:
        """Whether the folder still has a record that this run is to replace."""
        return self._options.start is Start.OVERWRITE and not self._begun and len(self._results) > 0

    def _path(self, name: str) -> Path:
        return self.folder / name

    def _load(self) -> None:
        """Read the record. Damaged lines are reported if they matter."""
        resumed = self._options.start is Start.RESUME
        damage = DamageReport(shown=resumed)
        for record in self._results.load(damage.add):
            self._earlier.add(record)
        if resumed and damage.complete_lines and not len(self._results):
            raise OutputExistsError(
                f"{self._path(RESULTS)} is not the record of a run",
                source=str(self.folder),
                hint="Choose another --out, or replace the file with --overwrite.",
            )
        if resumed and self._options.report:
            for line in self._report.load(damage.add):
                self._drawn[line.name] = line.key
        damage.end()

    def _begin(self) -> None:
        """Before the first result is written: unless the earlier run is continued, remove what it wrote.

        Its record is removed last. If this is interrupted, the record lists files that are missing, and these images
        are done again.
        """
        if not self._begun and self._options.start is not Start.RESUME:
            for record in self._results:
                self._remove_files(record)
            if self._path(REPORT_ENTRIES).exists():  # else the page is not ours
                self._path(REPORT).unlink(missing_ok=True)
            if len(self._results):
                self._path(TABLE).unlink(missing_ok=True)
            self._report.clear()
            self._results.clear()
        self._begun = True

    def _withdraw(self, name: str) -> None:
        """Before an image is done again: keep its result, but without files and without the hash of the image.

        If this run is killed before the new record is written, the new files are then not taken for those of the old
        record, which may be of another target.
        """
        record = self._results.get(name)
        if record is not None and (record.files or self._options.report):
            self._results.append(record.model_copy(update={"image_sha256": None, "files": ()}))
            self._remove_files(record)

    def _remove_announced_files(self) -> None:
        """Remove the pictures that a killed run has announced and not recorded."""
        name, files = self._announced.read()
        record = self._results.get(name)
        recorded = () if record is None else record.files
        for file in set(files) - set(recorded):
            self._remove_file(file)
        self._announced.clear()

    def _refuse_foreign_files(self, plan: Plan) -> None:
        """Raise an error if this run would replace a file that no record lists."""
        fixed = {REPORT: self._options.report, TABLE: self._options.table}
        names = [name for name, wanted in fixed.items() if wanted]
        names += [
            str(PurePosixPath(task.name).parent / name)
            for task in plan.tasks
            for name in possible_names(PurePosixPath(task.name).name, self._options.pictures)
        ]
        found = next((name for name in names if self._path(name).exists()), None)
        if found is not None:
            raise OutputExistsError(
                f"{self.folder} has the file {found}, which this run would replace",
                source=str(self.folder),
                hint="Use --overwrite to replace it, or another --out.",
            )

    def _write_report(self) -> None:
        """Write the page of all images whose entry belongs to their record. Another entry may be of another target."""
        keys = {record.name: record.key for record in self._results}
        count = sum(self._drawn.get(name) == key for name, key in keys.items())
        title = f"{self._artist.manifest.model.name}: {count_of(count, 'image')}"
        entries = ({"name": line.name, **line.entry} for line in self._report if keys.get(line.name) == line.key)
        write_report(self._path(REPORT), title, entries)
        self._report.compact()

    def _remove_files(self, record: RunRecord) -> None:
        for file in record.files:
            self._remove_file(file)

    def _remove_file(self, file: str) -> None:
        path = file_inside(self.folder, file)
        if path is not None and is_output_name(path.name):
            path.unlink(missing_ok=True)
