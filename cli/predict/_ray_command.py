"""`bcos-sdk predict --engine ray`: explain images on a cluster, show the progress, count what failed."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bcos_sdk._progress import Progress
from bcos_sdk.bundle import Bundle
from bcos_sdk.cli._folder_lock import FolderLock
from bcos_sdk.cli._signals import received_interrupt
from bcos_sdk.cli._terminal import count_of, print_error, print_message
from bcos_sdk.cli._trust_options import Trust
from bcos_sdk.cli.predict._choices import target_of
from bcos_sdk.cli.predict._ray_options import RayOptions
from bcos_sdk.cli.predict._ray_sources import Images, find_images_and_urls
from bcos_sdk.errors import ImagesFailedError, IncompleteExplanationError
from bcos_sdk.ray import (
    Folder,
    Job,
    Maps,
    Outcome,
    Plan,
    Question,
    Start,
    Workers,
    address_of_cluster,
    check_start,
    connected,
    local_cpus,
    open_model,
    require_ray,
)

__all__ = ["Asked", "predict_on_ray"]

_MOST_EXAMPLES = 20
_SECONDS_BETWEEN_LINES = 30.0


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    sources: tuple[str, ...]
    null: bool
    out: Path | str
    model: str
    reason: str
    """Why this model was chosen."""
    explain: bool
    targets: tuple[str, ...]
    top_k: int | None
    pictures: tuple[str, ...]

    def question(self, bundle: Bundle, maps: Maps | None) -> Question:
        """What is computed and stored for each image."""
        explain = self.explain or bool(self.targets or self.pictures or maps)
        labels = bundle.manifest.labels or ()
        return Question(
            explain=explain,
            targets=[target_of(text, labels) for text in self.targets] or None,
            top_k=self.top_k or (1 if explain else 5),
            maps=maps or ("float16" if explain else "none"),
            pictures=self.pictures,
        )


def predict_on_ray(asked: Asked, client: dict[str, Any], trust: Trust, ray: RayOptions, start: str) -> int:
    """Run the command on a cluster, and return its exit code."""
    return _RayRun(asked, client, trust, ray, Start[start]).run()


@dataclass
class _RayRun:
    """One run of the command on a cluster."""

    asked: Asked
    client: dict[str, Any]
    """Arguments of `Client`."""
    trust: Trust
    ray: RayOptions
    start: Start
    total: Outcome = field(default_factory=Outcome)
    _shown: int = 0

    def run(self) -> int:
        """Run, and return the exit code: 4 if an explanation was incomplete, 5 if other images failed, else 0."""
        require_ray()
        folder = Folder(str(self.asked.out))
        _refuse_file(folder)
        check_start(folder, self.start)
        found = find_images_and_urls(self.asked.sources, null=self.asked.null, out=folder.local)
        bundle = open_model(self.asked.model, **self.trust.arguments)
        self.asked.question(bundle, self.ray.maps).check(bundle.manifest, self.client["limits"])
        with _locked(folder):
            for failure in found.failures:
                self.total.failed(failure.code, failure.message)
                print_error(failure.code, failure.message)
            address = address_of_cluster(self.ray.address)
            cores = os.cpu_count() or 1
            cpus = local_cpus(self.ray.workers, self.client["threads"], cores)
            print_message(
                f"connecting to the Ray cluster at {address}"
                if address
                else f"starting a local Ray cluster, {cpus} CPUs"
            )
            if address is None and cpus > cores:
                print_message(f"this machine has {count_of(cores, 'core')}, which the workers share", label="note:")
            with connected(self.ray.address, cpus, _size(bundle)):
                self._process(folder, bundle, found)
        if self.total.failures.get(IncompleteExplanationError.code):
            return IncompleteExplanationError.exit_code
        return ImagesFailedError.exit_code if self.total.failures else 0

    def _process(self, folder: Folder, bundle: Bundle, found: Images) -> None:
        job = Job(
            bundle,
            self.asked.model,
            self.asked.question(bundle, self.ray.maps),
            folder,
            self.client,
            start=self.start,
            workers=self.ray.workers,
            threads=self.client["threads"],
            gpus=self.ray.gpus_per_worker,
            images_per_file=self.ray.images_per_file,
            ship=self.ray.ship or "auto",
        )
        with Progress(len(found.paths), "images") as progress, closing(self._outcomes(job, bundle, found)) as outcomes:
            line = time.monotonic()
            try:
                for outcome in outcomes:
                    progress.clear()
                    self._count(outcome)
                    progress.step(outcome.images)
                    if not sys.stderr.isatty() and time.monotonic() - line > _SECONDS_BETWEEN_LINES:
                        line = time.monotonic()
                        print_message(progress.line())
                    if (interrupt := received_interrupt()) is not None:
                        raise interrupt
            except (KeyboardInterrupt, Exception) as error:
                interrupt = error if isinstance(error, KeyboardInterrupt) else received_interrupt()
                if interrupt is None:
                    raise
                progress.clear()
                what = str(interrupt) or "interrupted"
                done = f"{self.total.images:,} of {count_of(len(found.paths), 'image')} are finished"
                interrupt.args = (f"{what}: {done}; continue with --resume",)
                raise interrupt from None
        self._print_summary(folder)

    def _outcomes(self, job: Job, bundle: Bundle, found: Images) -> Generator[Outcome, None, None]:
        def began(plan: Plan, workers: Workers) -> None:
            images = count_of(plan.images, "image")
            print_message(f"{bundle.manifest.model.name} ({self.asked.reason}), {images}, {workers}")
            if found.skipped:
                parts = (f"{count_of(number, 'file')} {reason}" for reason, number in found.skipped.items())
                print_message(f"skipped {', '.join(parts)}")
            if plan.recorded:
                print_message(f"{count_of(plan.recorded, 'image')} have a row of an earlier run, which is compared")

        return job.run(found.paths, began)

    def _count(self, outcome: Outcome) -> None:
        """Add the numbers of a shard. The first failures are printed, the others are rows."""
        self.total.add(outcome)
        for code, message in outcome.examples:
            self._shown += 1
            if self._shown <= _MOST_EXAMPLES:
                print_error(code, message)

    def _print_summary(self, folder: Folder) -> None:
        total = self.total
        if total.repeated:
            number = sum(total.repeated.values())
            reasons = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(total.repeated.items()))
            print_message(f"{count_of(number, 'image')} of the earlier run were done again: {reasons}")
        if len(total.failures) > 1 or self._shown > _MOST_EXAMPLES:
            codes = ", ".join(f"{code} ({count:,})" for code, count in Counter(total.failures).most_common())
            print_message(f"failures by code: {codes}; every one is a row with status = 'failed'")
        text = f"{total.done:,} done, {sum(total.failures.values()):,} failed"
        if total.kept:
            text += f", {total.kept:,} from an earlier run"
        print_message(f"{text}; written to {folder.place}")


def _refuse_file(folder: Folder) -> None:
    if folder.local is not None and folder.local.exists() and not folder.local.is_dir():
        raise click.UsageError(f"--out {folder.local} is a file, expected a folder")


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    """Hold the lock of a folder on this machine. In a store, the run that began last may write."""
    if folder.local is None:
        yield
        return
    folder.local.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder.local)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _size(bundle: Bundle) -> int:
    return sum(record.size for record in bundle.manifest.files.values())
