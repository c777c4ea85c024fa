"""What is left to do: compare the images of a run with the record of earlier runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bcos_sdk._progress import Progress
from bcos_sdk.cli._journal import Journal
from bcos_sdk.cli._terminal import count_of
from bcos_sdk.cli.predict._content import Content
from bcos_sdk.cli.predict._image_files import ImageFile
from bcos_sdk.cli.predict._output_names import OutputNames
from bcos_sdk.cli.predict._own_files import absolute_text
from bcos_sdk.cli.predict._run_record import RunRecord, file_inside
from bcos_sdk.images import source_name, source_path
from bcos_sdk.results import Failure, Work

__all__ = ["EarlierRun", "Plan", "Task", "path_text"]


@dataclass(frozen=True)
class Task:
    """An image to process, and the unique name that its output files begin with."""

    path: Path
    name: str


@dataclass
class Plan:
    """The images to process, the number of finished ones, and how many are done again for which reason."""

    tasks: list[Task] = field(default_factory=list)
    finished: int = 0
    repeated: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """For example "12 images were finished by an earlier run; 3 are done again: the file changed (2), …"."""
        were = "was" if self.finished == 1 else "were"
        text = f"{count_of(self.finished, 'image')} {were} finished by an earlier run"
        if number := self.repeated.total():
            reasons = ", ".join(f"{reason} ({count:,})" for reason, count in self.repeated.items())
            text += f"; {number:,} {'is' if number == 1 else 'are'} done again: {reasons}"
        return text


@dataclass
class EarlierRun:
    """The record of an output folder. It knows an image by its absolute path."""

    folder: Path
    results: Journal[RunRecord]
    work: Work
    report_keys: dict[str, str] | None = None
    """The key of each image in the report; None if no report is wanted."""
    name_of: dict[str, str] = field(default_factory=dict)
    """The name of each image in the record, by its path."""
    path_of: dict[str, str] = field(default_factory=dict)
    """The path of each image in the record, by its name."""

    def add(self, record: RunRecord) -> None:
        """Take note of a record of the folder. It replaces an earlier record of the same name."""
        self.name_of.pop(self.path_of.get(record.name, ""), None)
        path = record.path or path_text(source_path(record.outcome.source))  # older versions recorded no path
        self.name_of[path] = record.name
        self.path_of[record.name] = path

    def plan(self, images: Sequence[ImageFile]) -> Plan:
        """Decide for each image whether it is finished, and give each of the others its name."""
        plan = Plan()
        names = OutputNames()
        for name in self.name_of.values():
            names.reserve(name)
        shown = None if self.name_of else False
        with Progress(len(images), "images", label="Comparing with the record", shown=shown) as progress:
            for image in images:
                record = self.results.get(self.name_of.get(path_text(image.path), ""))
                reason = None if record is None else self._reason_to_repeat(record, image.path)
                if record is None:
                    plan.tasks.append(Task(image.path, names.give(image.name)))
                elif reason is None:
                    plan.finished += 1
                else:
                    plan.tasks.append(Task(image.path, record.name))
                    plan.repeated[reason] += 1
                progress.step()
        return plan

    def _reason_to_repeat(self, record: RunRecord, path: Path) -> str | None:
        """Why the recorded result is not the one that this run would give; None if it is."""
        if isinstance(record.outcome, Failure):
            return "failed before"
        if record.work is None:
            return "recorded by an older version"
        if record.image_sha256 is None:
            return "not finished"
        if difference := self.work.difference(record.work):
            return difference
        if not all(map(self._exists, record.files)):
            return "a file is missing"
        if self.report_keys is not None and self.report_keys.get(record.name) != record.key:
            return "not in the report"
        found = Content.of(path)
        return None if found is not None and found.sha256 == record.image_sha256 else "the file changed"

    def _exists(self, file: str) -> bool:
        path = file_inside(self.folder, file)
        return path is not None and path.is_file()


def path_text(path: Path) -> str:
    """The absolute path as text, written like the `source` of a result."""
    return source_name(absolute_text(path), 0)
