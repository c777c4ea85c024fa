"""`bcos-sdk concepts`: which directions of inner layers speak for a class, and the images that show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bcos_sdk._progress import Progress
from bcos_sdk.bundle import BUILTIN_MODEL
from bcos_sdk.cli._common import device_option, split_list, tf32_option, threads_option, trust_engines_option
from bcos_sdk.cli._signals import received_interrupt
from bcos_sdk.cli._terminal import count_of, print_error, print_message
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.cli.concepts._page import failure_entry, page_entries
from bcos_sdk.cli.concepts._sheet_folder import SheetFolder
from bcos_sdk.cli.predict import choose_model, find_images, target_of
from bcos_sdk.concepts import (
    Concepts,
    DrawnDirection,
    LayerConcepts,
    check_arguments,
    draw_concepts,
    find_concepts,
    sheet_picture,
)
from bcos_sdk.errors import ImagesFailedError, InputError, UnknownLayerError
from bcos_sdk.limits import Limits
from bcos_sdk.results import Failure

__all__ = ["concepts"]

_FOLDER = click.Path(path_type=Path, file_okay=False)


class _Bars:
    """One progress bar per pass. An interrupt that was received ends the search after an image."""

    def __init__(self) -> None:
        self._name = ""
        self._done = 0
        self._bar: Progress | None = None

    def __call__(self, name: str, done: int, total: int) -> None:
        if self._bar is None or name != self._name:
            self.end()
            self._name, self._done, self._bar = name, done - 1, Progress(total, "images", label=name)
            self._bar.start_at(done - 1)
        self._bar.step(done - self._done)
        self._done = done
        if (interrupt := received_interrupt()) is not None:
            raise interrupt

    def clear(self) -> None:
        if self._bar is not None:
            self._bar.clear()

    def end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def _paths(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    paths = split_list(text)
    if not paths:
        raise click.BadParameter(
            f"{text!r} names no layer: write for example --layer layer3; `bcos-sdk layers BUNDLE` lists all of a bundle"
        )
    return paths


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="IMAGES...")
@click.option(
    "--layer",
    "layers",
    required=True,
    metavar="PATHS",
    callback=_paths,
    help="Layers of the export, from early to late: layer3,layer4.",
)
@click.option("--class", "target", required=True, help="The class: a label or an index.")
@click.option("--directions", type=click.IntRange(1, 100), default=6, show_default=True, help="Directions per layer.")
@click.option("--images", type=click.IntRange(1, 200), default=9, show_default=True, help="Images per direction.")
@click.option("-o", "--out", type=_FOLDER, required=True, help="The output folder.")
@click.option(
    "--model",
    help="A folder (./NAME) or a stored export; default: BCOS_SDK_MODEL, the last export if it has layers, or "
    f"{BUILTIN_MODEL}.",
)
@click.option("--resume", is_flag=True, help="Continue the search that was interrupted in OUT.")
@click.option("--overwrite", is_flag=True, help="Replace the sheet in OUT.")
@click.option("--untrusted", is_flag=True, help="The images are from strangers: decode them in child processes.")
@device_option
@threads_option
@tf32_option
@trust_engines_option
@trust_options
@click.pass_context
def concepts(
    ctx: click.Context,
    sources: tuple[str, ...],
    layers: tuple[str, ...],
    target: str,
    directions: int,
    images: int,
    out: Path,
    model: str | None,
    resume: bool,
    overwrite: bool,
    untrusted: bool,
    device: str,
    threads: int | None,
    tf32: bool,
    trust_engines: bool,
    trust: Trust,
) -> None:
    """Draw what speaks for a class in inner layers, as a sheet of the images that show it.

    Finds the directions of each layer that contribute most to the class over IMAGES, and the images that activate each
    direction most. Writes OUT/sheet.png, OUT/sheet.html and OUT/sheet.json. An image that fails is reported and does
    not stop the run: the exit code is then 5.

    \b
    Examples:
      bcos-sdk concepts images/ --layer layer3 --class horse -o sheet
      bcos-sdk concepts images/ --layer layer2,layer3,layer4 --class horse --directions 3 -o early-to-late
    """
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite cannot be used together")
    found = find_images(sources, out=out)
    folder = SheetFolder(out, resume, overwrite)
    folder.check()
    from bcos_sdk import Client

    chosen, reason = choose_model(model, with_layers=True)
    opened = Client(
        chosen,
        device=device,
        threads=threads,
        tf32=tf32,
        trust_engines=trust_engines,
        limits=Limits(decoding="isolated" if untrusted else "in_process"),
        **trust.arguments,
    )
    with opened as client:
        count = count_of(len(found.images), "image")
        print_message(f"{client.manifest.model.name} ({reason}) on {client.device}, {count}")
        _check_layers(client, layers)
        label = check_arguments(client, layers, target_of(target, client.labels))
        bars, printed = _Bars(), set[str]()

        def report(failure: Failure) -> None:
            if failure.source not in printed:
                printed.add(failure.source)
                bars.clear()
                print_error(failure.code, failure.message)

        for failure in found.failures:
            report(failure)
        with folder:
            try:
                concepts = find_concepts(
                    client,
                    [image.path for image in found.images],
                    layers=layers,
                    target=label,
                    directions=directions,
                    examples=images,
                    state_file=folder.state,
                    on_progress=bars,
                    on_failure=report,
                )
            except (InputError, ImagesFailedError):
                folder.state.unlink(missing_ok=True)  # continuing would end in the same way
                raise
            except KeyboardInterrupt as interrupt:
                bars.end()
                interrupt.args = (f"{str(interrupt) or 'interrupted'}: continue with --resume",)
                raise
            finally:
                bars.end()
            concepts = concepts.model_copy(update={"failures": (*found.failures, *concepts.failures)})
            finished = _draw(client, concepts, folder, directions)
    for failure in finished.failures:
        report(failure)
    ctx.exit(ImagesFailedError.exit_code if finished.failures else 0)


def _check_layers(client: Any, layers: tuple[str, ...]) -> None:
    """Raise an error if the model has no inner layers at all: a hint says which built-in model has."""
    if not client.manifest.layer_records:
        raise UnknownLayerError(
            f"{client.manifest.model.name} has no graphs of inner layers, got --layer {','.join(layers)}",
            source=",".join(layers),
            hint=f"Add --model {BUILTIN_MODEL}, which has layer1 to layer4, or export your model with --layers PATH,…: "
            "`bcos-sdk layers MODEL` lists the paths.",
        )


def _draw(client: Any, concepts: Concepts, folder: SheetFolder, directions: int) -> Concepts:
    """Explain the examples, and write the sheet with the certificates of their explanations."""
    entries: list[dict[str, Any]] = []
    done: list[DrawnDirection] = []

    def drawn() -> Iterator[DrawnDirection]:
        total = sum(len(one.concepts) for one in concepts.layers)
        with Progress(total, "directions", label="explain") as progress:
            for place, one in enumerate(draw_concepts(client, concepts)):
                entries.extend(page_entries(one, place, concepts.label, client.manifest))
                done.append(DrawnDirection(one.layer, one.number, one.concept, (), one.failures))
                yield one
                progress.step()

    sheet = sheet_picture(concepts, drawn())
    layers = tuple(
        layer.model_copy(update={"concepts": tuple(one.concept for one in done if one.layer is layer)})
        for layer in concepts.layers
    )
    failures = {one.source: one for one in (*concepts.failures, *(f for d in done for f in d.failures))}
    finished = concepts.model_copy(update={"layers": layers, "failures": tuple(failures.values())})
    title = f"{concepts.label} in {', '.join(one.layer for one in layers)}: {concepts.model}, "
    title += count_of(concepts.images, "image")
    paths = folder.write(sheet, title, [*entries, *map(failure_entry, finished.failures)], finished)
    for layer in layers:
        print_message(_summary(layer, directions))
    print_message(
        f"{count_of(concepts.predicted, 'image')} predicted as {concepts.label}; written to {paths[0].parent}"
    )
    return finished


def _summary(layer: LayerConcepts, asked: int) -> str:
    """How many directions were found from how many candidates; fewer than asked for if there are too few candidates."""
    found, candidates = len(layer.concepts), count_of(layer.candidates, "candidate")
    limit = f"cosines at most {layer.cosine_limit:.2f}"
    if found < asked:
        return f"{layer.layer}: {found} of {asked} asked for: the images gave {candidates}; {limit}"
    return f"{layer.layer}: {count_of(found, 'direction')} from {candidates}, {limit}"
