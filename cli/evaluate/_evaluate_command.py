"""`bcos-sdk evaluate`: accuracy, localisation, masks, faithfulness, bias and stability on labelled images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bcos_sdk._extras import require
from bcos_sdk._progress import Progress
from bcos_sdk.cli._common import device_option, split_list, tf32_option, threads_option, trust_engines_option
from bcos_sdk.cli._terminal import count_of, print_message
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.cli.evaluate._grids import GridChoice, GridModel
from bcos_sdk.cli.evaluate._limits import Demands
from bcos_sdk.cli.evaluate._output import EvaluationFolder, Part
from bcos_sdk.cli.evaluate._result import exit_code, print_result, write_result

if TYPE_CHECKING:
    from bcos_sdk import Client

__all__ = ["evaluate"]

_MEASURES = ("accuracy", "localisation", "masks", "faithfulness", "bias", "stability")
_METHODS = ("intgrad", "ixg", "gradcam", "deeplift", "guided", "lime", "occlusion")
_PATH = click.Path(path_type=Path)
_PERCENT = click.FloatRange(0, 100)


def _measures(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    names = _MEASURES if text == "all" else split_list(text)
    if unknown := [name for name in names if name not in _MEASURES]:
        raise click.BadParameter(f"unknown measure {', '.join(unknown)}: choose from {', '.join(_MEASURES)}, or all")
    return names


def _methods(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    names = _METHODS if text == "all" else split_list(text)
    if unknown := [name for name in names if name not in _METHODS]:
        raise click.BadParameter(f"unknown method {', '.join(unknown)}: choose from {', '.join(_METHODS)}, or all")
    return names


@click.command()
@click.argument("data", type=_PATH)
@click.option("--model", required=True, help="The bundle: a folder (./NAME), a stored export, or the built-in model.")
@click.option("--compare", metavar="BUNDLE", help="Another bundle, for paired differences on the same images.")
@click.option("--compare-device", help="Its device; default: that of the model.")
@click.option(
    "--measure",
    "measures",
    default="accuracy,bias",
    show_default=True,
    callback=_measures,
    help=f"{', '.join(_MEASURES)}, or all. Accuracy is always measured.",
)
@click.option("--images", type=click.IntRange(1), default=200, show_default=True, help="Images for explanations.")
@click.option("--masks", type=_PATH, metavar="DIR", help="Masks of class folders or of a CSV file.")
@click.option(
    "--split",
    help="Split of Oxford-IIIT Pet: test, trainval, list, or held-out, on which the built-in model was not trained. "
    "[default: test]",
)
@click.option("--grids", type=click.IntRange(1), default=100, show_default=True, help="Grids for localisation.")
@click.option("--cells", type=click.IntRange(2, 10), default=3, show_default=True, help="Images along a grid's side.")
@click.option(
    "--grid-mode",
    type=click.Choice(["auto", "network", "windows"]),
    default="auto",
    show_default=True,
    help="network: export the model at the grid's size; windows: slide the bundle over the grid.",
)
@click.option("--grid-model", metavar="BUNDLE", help="The same network, exported at the grid's size.")
@click.option("--compare-grid-model", metavar="BUNDLE", help="That of the compared network.")
@click.option(
    "--weights",
    type=_PATH,
    metavar="FILE",
    multiple=True,
    help="The weights file of a fine-tuned model, for grids and --against. Repeat it for that of --compare.",
)
@click.option("--base", metavar="NAME", help="The registry model of --weights; default: the name in the bundle.")
@click.option(
    "--against",
    default="",
    metavar="METHODS",
    callback=_methods,
    help=f"Post-hoc methods on the same grids: {','.join(_METHODS)}, or all. Needs the extra evaluate.",
)
@click.option(
    "--against-grids",
    type=click.IntRange(1),
    help="Grids for post-hoc methods, the first ones. [default: all of --grids]",
)
@click.option(
    "--slow-grids",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Grids for those that take hundreds of passes: intgrad, lime, occlusion.",
)
@click.option("--smooth", type=click.IntRange(1), help="Smoothing of maps in pixels; default: 15 of 224, 3 of 32.")
@click.option("--patch", type=click.IntRange(1), default=1, show_default=True, help="Side of flipped squares.")
@click.option("--mean-corrected", is_flag=True, help="Explain each logit minus the mean of all logits.")
@click.option("--seed", type=click.IntRange(0, (1 << 32) - 1), default=42, show_default=True)
@click.option("--min-accuracy", type=_PERCENT, help="Exit code 3 if top-1 is below, in per cent.")
@click.option("--min-localisation", type=_PERCENT, help="Exit code 3 if localisation is below, in per cent.")
@click.option(
    "--max-drop", type=click.FloatRange(0), help="Exit code 3 if a figure is this many points below --compare."
)
@click.option("--out", type=_PATH, default=Path("bcos-evaluation"), show_default=True, help="The output folder.")
@click.option("--resume", is_flag=True, help="Continue the evaluation recorded in OUT.")
@click.option("--overwrite", is_flag=True, help="Replace the evaluation recorded in OUT.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON instead of the table.")
@device_option
@threads_option
@tf32_option
@trust_engines_option
@trust_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    data: Path,
    model: str,
    compare: str | None,
    compare_device: str | None,
    measures: tuple[Any, ...],
    images: int,
    masks: Path | None,
    split: str | None,
    grids: int,
    cells: int,
    grid_mode: Any,
    grid_model: str | None,
    compare_grid_model: str | None,
    weights: tuple[Path, ...],
    base: str | None,
    against: tuple[str, ...],
    against_grids: int | None,
    slow_grids: int,
    smooth: int | None,
    patch: int,
    mean_corrected: bool,
    seed: int,
    min_accuracy: float | None,
    min_localisation: float | None,
    max_drop: float | None,
    out: Path,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    device: str,
    threads: int | None,
    tf32: bool,
    trust_engines: bool,
    trust: Trust,
) -> None:
    """Measure a model and its explanations on the labelled images DATA.

    DATA is a folder with one folder of images per class, a CSV file path,label[,mask], the unpacked CIFAR-10, or
    Oxford-IIIT Pet. Figures go to stdout; OUT gets evaluation.json, evaluation.html with plots, and the scores of each
    image. An image that fails is listed and counted, and the others are measured: the exit code is 5. It is 3 if a
    --min or --max is not met.

    \b
    Examples:
      bcos-sdk evaluate cifar-10-batches-bin --model cifar10_resnet18_w16 --measure all
      bcos-sdk evaluate oxford-pets --split held-out --model pets37_resnet18_w32 --measure masks
      bcos-sdk evaluate imagenet/val --model resnet50 --measure localisation --grids 500
      bcos-sdk evaluate val.csv --model resnet50-fp16 --compare resnet50 --max-drop 0.5
    """
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite cannot be used together")
    if max_drop is not None and compare is None:
        raise click.UsageError("--max-drop needs --compare")
    for option, value in (("--compare-device", compare_device), ("--compare-grid-model", compare_grid_model)):
        if value is not None and compare is None:
            raise click.UsageError(f"{option} needs --compare")
    if against and mean_corrected:
        raise click.UsageError("--against and --mean-corrected cannot be used together")
    if against:
        require("torch", "captum", purpose="Comparing with post-hoc methods")
    wanted = (*measures, *(("localisation",) if against or min_localisation is not None else ()))
    from bcos_sdk import Client
    from bcos_sdk.evaluation import (
        Run,
        Settings,
        Subject,
        WeightsChoice,
        check_masks,
        compare_methods,
        evaluation_of,
        open_dataset,
        open_network,
    )

    options: dict[str, Any] = {"threads": threads, "tf32": tf32, "trust_engines": trust_engines}
    with ExitStack() as stack:
        client = stack.enter_context(Client(model, device=device, **options, **trust.arguments))
        other = None
        if compare is not None:
            other = stack.enter_context(Client(compare, device=compare_device or device, **options))
            _check_comparable(client, other)
        dataset = open_dataset(data, client.labels, masks=masks, split=split)
        names = [one.manifest.model.name for one in (client, other) if one is not None]
        dataset = replace(dataset, notes=(*dataset.notes, *dataset.training_notes(*names)))
        if measures == _MEASURES and not dataset.has_masks:
            wanted = tuple(name for name in wanted if name != "masks")
            print_message("the data set has no masks, so these are not measured", label="note:")
        settings = Settings(
            measures=wanted,
            explained=images,
            grids=grids,
            cells=cells,
            grid_mode=grid_mode,
            smooth=smooth,
            patch=patch,
            mean_corrected=mean_corrected,
            seed=seed,
        )
        check_masks(dataset, settings)
        work = {
            "data set": dataset.fingerprint,
            "model": [client.manifest.digest, client.device],
            "compared model": None if other is None else [other.manifest.digest, other.device],
            "settings": settings.model_dump(mode="json"),
            "TF32": tf32,
        }
        folder = stack.enter_context(EvaluationFolder(out, work, resume=resume, overwrite=overwrite))
        print_message(f"{client.manifest.model.name} on {client.device}, {count_of(len(dataset.samples), 'image')}")
        for note in dataset.notes:
            print_message(note, label="note:")

        subject, second = Subject(client, mean_corrected), None if other is None else Subject(other, mean_corrected)
        choice = WeightsChoice(weights, base, registry=not weights)
        network = open_network(subject, dataset.samples, choice) if against else None
        models = [GridModel(subject, grid_model, choice)]
        if second is not None:
            models.append(GridModel(second, compare_grid_model, choice.of_compared(*names)))
        grid_choice = GridChoice(models, dataset, settings, options, stack)
        run = Run(
            subject, dataset, settings, grid_choice.maps_of(0), Part(folder, "model"),
            _show_progress("model" if other else ""), other=second,
            skip_without_grids=measures == _MEASURES and not against,
        )  # fmt: skip
        run.finish()
        for note in run.notes:
            print_message(note, label="note:")
        compared: Run | None = None
        if second is not None:
            compared = Run(
                second, dataset, settings, grid_choice.maps_of(1), Part(folder, "compared"),
                _show_progress("compared"), skip_without_grids=run.skip_without_grids, of=run,
            )  # fmt: skip
            compared.finish()
        methods = None
        if network is not None:
            methods = compare_methods(run, network, against, grids=against_grids or grids, slow_grids=slow_grids)
        result = evaluation_of(run, compared, methods)
        write_result(result, folder)
    print_result(result, as_json, folder)
    ctx.exit(exit_code(result, Demands(min_accuracy, min_localisation, max_drop)))


def _check_comparable(model: Client, other: Client) -> None:
    if model.labels != other.labels:
        raise click.UsageError("--model and --compare have different labels, so their images cannot be compared")


def _show_progress(label: str) -> Any:
    @contextmanager
    def show(measure: str, total: int, done: int) -> Iterator[Callable[[], None]]:
        with Progress(total, "items", label=f"{label} {measure}".strip()) as progress:
            progress.start_at(done)
            yield progress.step

    return show
