"""`bcos-sdk predict`: classify images and explain the classes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bcos_sdk._progress import Progress
from bcos_sdk.bundle import builtin_bundle, latest_stored_bundle
from bcos_sdk.cli._common import device_option, split_list, tf32_option, threads_option
from bcos_sdk.cli._drawings import PICTURES, Artist
from bcos_sdk.cli._formats import as_text, csv_rows, write_parquet
from bcos_sdk.cli._image_files import ImageFile, find_images
from bcos_sdk.cli._output import Output, OutputOptions, Result
from bcos_sdk.errors import ImagesFailedError, IncompleteExplanationError
from bcos_sdk.results import Failure

__all__ = ["predict"]


_MODEL_VARIABLE = "BCOS_SDK_MODEL"
_FORMATS = click.Choice(["text", "jsonl", "csv", "parquet"])
_FOLDER = click.Path(path_type=Path, file_okay=False)


def _kinds(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    kinds = split_list(text)
    if unknown := [kind for kind in kinds if kind not in PICTURES]:
        raise click.BadParameter(f"unknown kind {', '.join(unknown)}: choose from {', '.join(PICTURES)}")
    return kinds


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.option("--explain", is_flag=True, help="Explain the class; implied by --target, --save and --report.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="What to explain: a label, an index, 'mean' or 'A vs B'; can be repeated.",
)
@click.option(
    "--save", default="", metavar="KINDS", callback=_kinds, help=f"Write these for each image: {','.join(PICTURES)}."
)
@click.option("--report", is_flag=True, help="Write OUT/report.html: one page with all images and explanations.")
@click.option(
    "--model",
    help="A bundle's folder or a stored export; default: BCOS_SDK_MODEL, the last export, or the built-in model.",
)
@click.option(
    "--top-k", type=click.IntRange(1), help="Number of classes to list (default 5) or to explain (default 1)."
)
@click.option("--out", type=_FOLDER, help="The output folder; default: bcos-out.")
@click.option(
    "--format", "form", type=_FORMATS, default="text", show_default=True, help="Format of the results on stdout."
)
@click.option("--resume", is_flag=True, help="Continue an interrupted run; failed images are tried again.")
@device_option
@threads_option
@click.option("--max-batch", type=click.IntRange(1), help="Largest images x targets; default: that of the export.")
@tf32_option
@click.pass_context
def predict(
    ctx: click.Context,
    sources: tuple[str, ...],
    explain: bool,
    targets: tuple[str, ...],
    save: tuple[str, ...],
    report: bool,
    model: str | None,
    top_k: int | None,
    out: Path | None,
    form: str,
    resume: bool,
    device: str,
    threads: int | None,
    max_batch: int | None,
    tf32: bool,
) -> None:
    """Classify the images SRC, and explain the classes.

    SRC is an image, a folder (searched recursively), a quoted pattern, @FILE with one path per line, or - for such a
    list on stdin. Results go to stdout, files to OUT. An image that fails is reported and does not stop the run: the
    exit code is 5, or 4 if an explanation is incomplete (does not add up to the logit).

    \b
    Examples:
      bcos-sdk predict cat.jpg
      bcos-sdk predict images/ --explain --report
      bcos-sdk predict images/ --target 'cat vs dog' --save overlay,npz --out why
      find . -name '*.png' | bcos-sdk predict - --format jsonl
    """
    writes = bool(save or report or resume or form == "parquet")
    images = find_images(sources)
    from bcos_sdk import Client

    chosen, reason = _choose_model(model)
    with Client(chosen, device=device, threads=threads, max_batch=max_batch, tf32=tf32) as client:
        click.echo(f"{client.manifest.model.name} ({reason}) on {client.device}, {len(images)} images", err=True)
        explain = explain or bool(targets or save or report)
        run = _Run(
            client=client,
            explain=explain,
            targets=tuple(_target(text, client.labels) for text in targets),
            top_k=top_k,
            form=form,
            output=Output(
                OutputOptions(out or Path("bcos-out"), explain, save, report, resume),
                Artist(client.manifest, ranked=not targets),
            )
            if writes or out
            else None,
        )
        run.process(images)
    ctx.exit(run.exit_code())


def _choose_model(model: str | None) -> tuple[str | Path, str]:
    """Return the model for `Client`, and the reason for the choice."""
    if model is not None:
        return model, "--model"
    if from_environment := os.environ.get(_MODEL_VARIABLE):
        return from_environment, _MODEL_VARIABLE
    latest = latest_stored_bundle()
    if latest is not None:
        return latest, "the last export"
    return builtin_bundle(), "built in"


def _target(text: str, labels: tuple[str, ...]) -> int | str:
    return int(text) if text.isdecimal() and text not in labels else text


@dataclass
class _Run:
    """Processes images, prints each result, and counts the failures by error code."""

    client: Any
    explain: bool
    targets: tuple[int | str, ...]
    top_k: int | None
    form: str
    output: Output | None
    failures: Counter[str] = field(default_factory=Counter)
    done: int = 0

    def process(self, images: list[ImageFile]) -> None:
        """Process every image that an earlier run has not finished. Each result is written as soon as it is ready."""
        if self.form == "csv":
            click.echo(csv_rows(None), nl=False)
        if self.output is None:
            self._process_all(images)
            return
        with self.output as output:
            finished = output.finished()
            remaining = [image for image in images if image.name not in finished]
            if finished:
                click.echo(f"{len(images) - len(remaining)} images were finished by an earlier run", err=True)
            try:
                self._process_all(remaining)
            finally:
                output.close_report(f"{self.client.manifest.model.name}: {len(images)} images")
            if self.form == "parquet":
                write_parquet(output.results(), output.folder / "results.parquet")
        click.echo(f"written to {output.folder}", err=True)

    def _process_all(self, images: list[ImageFile]) -> None:
        with Progress(len(images), "images") as progress:
            try:
                for image, result in zip(images, self._results(images), strict=True):
                    if self.output is not None:
                        self.output.write(image, result)
                    progress.clear()
                    self._print(result)
                    self.done += 1
                    progress.step()
            except KeyboardInterrupt:
                progress.clear()
                hint = "; continue with --resume" if self.output is not None else ""
                click.echo(f"interrupted: {self.done} of {len(images)} images are finished{hint}", err=True)
                raise click.exceptions.Exit(130) from None

    def _results(self, images: list[ImageFile]) -> Iterator[Result]:
        paths = [image.path for image in images]
        if not self.explain:
            yield from self.client.predict_stream(paths, top_k=self.top_k or 5)
            return
        second_class = self.output is not None and self.output.report_wanted and not self.targets
        yield from self.client.explain_stream(
            paths,
            targets=list(self.targets) or None,
            top_k=max(self.top_k or 1, 2 if second_class else 1),
            weights=self.output is not None and self.output.weights_wanted,
        )

    def _print(self, result: Result) -> None:
        if isinstance(result, Failure):
            self.failures[result.code] += 1
            click.echo(f"{click.style('error', fg='red')} [{result.code}]: {result.message}", err=True)
        if self.form == "jsonl":
            click.echo(result.to_json(arrays="omit"))
        elif self.form == "csv":
            click.echo(csv_rows(result), nl=False)
        elif self.form == "text" and not isinstance(result, Failure):
            click.echo(as_text(result))

    def exit_code(self) -> int:
        """4 if an explanation was incomplete, 5 if other images failed, else 0."""
        if self.failures[IncompleteExplanationError.code]:
            return IncompleteExplanationError.exit_code
        return ImagesFailedError.exit_code if self.failures else 0
