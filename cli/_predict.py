"""`bcos-sdk predict`: images in, classes and explanations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bcos_sdk.cli._drawings import PICTURES, Artist
from bcos_sdk.cli._formats import as_text, csv_rows, write_parquet
from bcos_sdk.cli._inputs import ImageFile, find_images
from bcos_sdk.cli._model_choice import choose_model
from bcos_sdk.cli._output import Output, OutputOptions, Result
from bcos_sdk.cli._progress import Progress
from bcos_sdk.errors import ImagesFailedError, IncompleteExplanationError
from bcos_sdk.results import Failure

__all__ = ["predict"]


def _kinds(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    """A list of pictures, separated by commas."""
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if unknown := [kind for kind in kinds if kind not in PICTURES]:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(PICTURES)}")
    return kinds


_FORMATS = click.Choice(["text", "jsonl", "csv", "parquet"])
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.option("--explain", is_flag=True, help="Say which pixels speak for the class; the next three imply it.")
@click.option("--target", "targets", multiple=True, help="A label, an index, 'mean', or 'A vs B'; may be repeated.")
@click.option("--save", default="", metavar="KINDS", callback=_kinds, help=f"Write {','.join(PICTURES)} per image.")
@click.option("--report", is_flag=True, help="Write OUT/report.html, one page to look at everything.")
@click.option(
    "--model", help="A bundle's folder or an export's name; default: BCOS_SDK_MODEL, the last export, built in."
)
@click.option("--top-k", type=click.IntRange(1), help="Classes to list (default 5) or to explain (default 1).")
@click.option("--out", type=_FOLDER, help="Folder for what is written; default: bcos-out.")
@click.option("--format", "form", type=_FORMATS, default="text", show_default=True, help="Of the results on stdout.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted run; failed images are tried again.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, openvino, cuda, cuda:1, tensorrt, ...")
@click.option("--threads", type=click.IntRange(1), help="Threads of the CPU; default: one per core.")
@click.option("--max-batch", type=click.IntRange(1), help="Images x targets at once; default: what was exported.")
@click.option("--tf32", is_flag=True, help="Let a GPU multiply with 11 binary digits: faster, less exact.")
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
    """Classify the images SRC, and explain why.

    SRC is an image, a folder (searched recursively), a quoted pattern, @FILE with one path per line, or - for such a
    list on stdin. Results go to stdout; what is written goes to OUT. A bad image is reported and does not stop the run:
    exit code 5, or 4 if an explanation did not add up.

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

    chosen, why = choose_model(model)
    with Client(chosen, device=device, threads=threads, max_batch=max_batch, tf32=tf32) as client:
        click.echo(f"{client.manifest.model.name} ({why}) on {client.device}, {len(images)} images", err=True)
        explain = explain or bool(targets or save or report)
        run = _Run(
            client=client,
            explain=explain,
            targets=tuple(_target(text, client.labels) for text in targets),
            top_k=top_k,
            form=form,
            output=Output(
                OutputOptions(out or Path("bcos-out"), explain, save, report, resume), Artist(client.manifest)
            )
            if writes or out
            else None,
        )
        run.all(images)
    ctx.exit(run.exit_code())


def _target(text: str, labels: tuple[str, ...]) -> int | str:
    return int(text) if text.isdecimal() and text not in labels else text


@dataclass
class _Run:
    client: Any
    explain: bool
    targets: tuple[int | str, ...]
    top_k: int | None
    form: str
    output: Output | None
    failures: Counter[str] = field(default_factory=Counter)
    done: int = 0

    def all(self, images: list[ImageFile]) -> None:
        """Every image that is not done already; results are written as they come."""
        if self.form == "csv":
            click.echo(csv_rows(None), nl=False)
        if self.output is None:
            self._each(images)
            return
        with self.output as output:
            finished = output.finished()
            waiting = [image for image in images if image.name not in finished]
            if finished:
                click.echo(f"{len(images) - len(waiting)} images were done before", err=True)
            try:
                self._each(waiting)
            finally:
                output.close_report(f"{self.client.manifest.model.name}: {len(images)} images")
            if self.form == "parquet":
                write_parquet(output.results(), output.folder / "results.parquet")
        click.echo(f"written to {output.folder}", err=True)

    def _each(self, images: list[ImageFile]) -> None:
        with Progress(len(images)) as progress:
            try:
                for image, result in zip(images, self._results(images), strict=True):
                    if self.output is not None:
                        self.output.write(image, result)
                    progress.clear()
                    self._say(result)
                    self.done += 1
                    progress.step()
            except KeyboardInterrupt:
                progress.clear()
                hint = "; --resume goes on from there" if self.output is not None else ""
                click.echo(f"interrupted: {self.done} of {len(images)} images are done{hint}", err=True)
                raise click.exceptions.Exit(130) from None

    def _results(self, images: list[ImageFile]) -> Iterator[Result]:
        paths = [image.path for image in images]
        if not self.explain:
            yield from self.client.predict_stream(paths, top_k=self.top_k or 5)
            return
        wants_second = self.output is not None and self.output.report_wanted and not self.targets
        yield from self.client.explain_stream(
            paths,
            targets=list(self.targets) or None,
            top_k=max(self.top_k or 1, 2 if wants_second else 1),
            weights=self.output is not None and self.output.weights_wanted,
        )

    def _say(self, result: Result) -> None:
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
        """0, 5 if some images failed, 4 if an explanation did not add up."""
        if self.failures[IncompleteExplanationError.code]:
            return IncompleteExplanationError.exit_code
        return ImagesFailedError.exit_code if self.failures else 0
