"""A run of `bcos-sdk predict`: process the images, write and print each result, count what failed."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bcos_sdk._progress import Progress
from bcos_sdk.cli._signals import received_interrupt
from bcos_sdk.cli._terminal import count_of, print_encoded, print_error, print_json, print_lines, print_message
from bcos_sdk.cli.predict._content import Content
from bcos_sdk.cli.predict._formats import as_lines, csv_rows, write_parquet
from bcos_sdk.cli.predict._image_files import Found
from bcos_sdk.cli.predict._output import Output
from bcos_sdk.cli.predict._plan import Task
from bcos_sdk.errors import ImagesFailedError, IncompleteExplanationError
from bcos_sdk.results import Explained, Failure, Result

__all__ = ["PredictRun"]


@dataclass
class PredictRun:
    """Processes images, prints each result, and counts the failures by error code."""

    client: Any
    explain: bool
    targets: tuple[int | str, ...]
    top_k: int
    weights: bool
    form: str
    output: Output | None
    done: int = 0
    earlier: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def check_arguments(self) -> None:
        """Raise an error if a target or `top_k` is wrong, before anything is written."""
        self._stream([])

    def process(self, found: Found) -> None:
        """Process every image that an earlier run has not finished. Each result is written as soon as it is ready."""
        if self.output is None:
            tasks = [Task(image.path, image.name) for image in found.images]
            self._process_all(tasks, found.failures)
        else:
            with self.output as output:
                plan = output.plan(found.images)
                self.earlier = plan.finished
                if plan.finished or plan.repeated:
                    print_message(str(plan))
                try:
                    self._process_all(plan.tasks, found.failures)
                except KeyboardInterrupt:
                    output.finish()  # report and table have what is finished
                    raise
                output.finish()
        self._print_summary()

    def exit_code(self) -> int:
        """4 if an explanation was incomplete, 5 if other images failed, else 0."""
        if self.failures[IncompleteExplanationError.code]:
            return IncompleteExplanationError.exit_code
        return ImagesFailedError.exit_code if self.failures else 0

    def _process_all(self, tasks: Sequence[Task], failures: Sequence[Failure]) -> None:
        with Progress(len(tasks), "images") as progress:
            try:
                results = self._counted([*failures], tasks, progress)
                if self.form == "parquet" and self.output is None:
                    write_parquet(results, sys.stdout.buffer)
                    return
                if self.form == "csv":
                    print_encoded(csv_rows(None))
                for result in results:
                    self._print(result)
            except (KeyboardInterrupt, Exception) as error:
                interrupt = error if isinstance(error, KeyboardInterrupt) else received_interrupt()
                if interrupt is None:
                    raise
                progress.clear()
                finished = self.done + self.failures.total() - len(failures)
                hint = "; continue with --resume" if self.output is not None else ""
                what = str(interrupt) or "interrupted"
                interrupt.args = (f"{what}: {finished:,} of {count_of(len(tasks), 'image')} are finished{hint}",)
                raise interrupt from None

    def _counted(self, failures: Iterable[Failure], tasks: Sequence[Task], progress: Progress) -> Iterator[Result]:
        """Yield the failures and the result of every task. Problems and notes go to stderr."""
        for failure in failures:
            self._count(failure, progress)
            yield failure
        for result in self._written(tasks):
            self._count(result, progress)
            yield result
            progress.step()
            if (interrupt := received_interrupt()) is not None:
                raise interrupt

    def _count(self, result: Result, progress: Progress) -> None:
        progress.clear()
        if isinstance(result, Failure):
            self.failures[result.code] += 1
            print_error(result.code, result.message)
            return
        self.done += 1
        prediction = result.prediction if isinstance(result, Explained) else result
        for note in prediction.notes:
            if not self.notes[note]:
                print_message(f"{result.source}: {note}", label="note:")
            self.notes[note] += 1

    def _written(self, tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield each result after its files and its record are written.

        Files are hashed before the client reads them: if one is replaced meanwhile, its record has the old hash, so
        that the image counts as changed.
        """
        contents: deque[Content | None] = deque()

        def paths() -> Iterator[Path]:
            for task in tasks:
                if self.output is not None:
                    contents.append(Content.of(task.path))
                yield task.path

        for task, result in zip(tasks, self._stream(paths()), strict=True):
            if self.output is not None:
                self.output.write(task, contents.popleft(), result)
            yield result

    def _stream(self, paths: Iterable[Path]) -> Iterator[Result]:
        if not self.explain:
            results: Iterator[Result] = self.client.predict_stream(paths, top_k=self.top_k)
            return results
        explained: Iterator[Result] = self.client.explain_stream(
            paths, targets=list(self.targets) or None, top_k=self.top_k, weights=self.weights
        )
        return explained

    def _print(self, result: Result) -> None:
        if self.form == "jsonl":
            print_json(result.to_json(arrays="omit"))
        elif self.form == "csv":
            print_encoded(csv_rows(result))
        elif self.form == "text" and not isinstance(result, Failure):
            print_lines(*as_lines(result))

    def _print_summary(self) -> None:
        """For example "2,996 done, 6 failed, 12 from an earlier run; written to OUT"."""
        for note, count in self.notes.items():
            if count > 1:
                print_message(f"{count_of(count - 1, 'more image')}: {note}", label="note:")
        text = f"{self.done:,} done, {self.failures.total():,} failed"
        if self.earlier:
            text += f", {self.earlier:,} from an earlier run"
        if self.output is not None:
            text += f"; written to {self.output.folder}"
            if outdated := self.output.outdated():
                print_message(f"{' and '.join(outdated)} in {self.output.folder}: of an earlier run", label="note:")
        print_message(text)
