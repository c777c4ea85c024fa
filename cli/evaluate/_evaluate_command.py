"""`bcos-sdk evaluate`: accuracy, localisation, masks, faithfulness, bias and stability on labelled images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bcos_sdk._extras import require
from bcos_sdk._files import output_file
from bcos_sdk._progress import Progress
from bcos_sdk.cli._common import columns, device_option, split_list, tf32_option, threads_option, trust_engines_option
from bcos_sdk.cli._terminal import count_of, print_error, print_json, print_lines, print_message
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.cli.evaluate._limits import EXIT_CODE, Demands
from bcos_sdk.cli.evaluate._output import EvaluationFolder, Part
from bcos_sdk.errors import ImagesFailedError

if TYPE_CHECKING:
    from bcos_sdk import Client
    from bcos_sdk.evaluation import Evaluation, GridMaps, Run, Settings

__all__ = ["evaluate"]

_MEASURES = ("accuracy", "localisation", "masks", "faithfulness", "bias", "stability")
_METHODS = ("intgrad", "ixg", "gradcam", "deeplift", "guided", "lime", "occlusion")
_MOST_PRINTED = 20
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
@click.option("--split", default="test", show_default=True, help="Split of Oxford-IIIT Pet: test, trainval or list.")
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
    split: str,
    grids: int,
    cells: int,
    grid_mode: Any,
    grid_model: str | None,
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
      bcos-sdk evaluate imagenet/val --model resnet50 --measure localisation --grids 500
      bcos-sdk evaluate val.csv --model resnet50-fp16 --compare resnet50 --max-drop 0.5
    """
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite cannot be used together")
    if max_drop is not None and compare is None:
        raise click.UsageError("--max-drop needs --compare")
    if compare_device is not None and compare is None:
        raise click.UsageError("--compare-device needs --compare")
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

        def maps_of(one: Client, bundle: str | None) -> GridMaps | None:
            return _grid_maps(one, settings, out, bundle, options, stack)

        second = None if other is None else Subject(other, mean_corrected)
        run = Run(
            Subject(client, mean_corrected), dataset, settings, maps_of(client, grid_model), Part(folder, "model"),
            _show_progress("model" if other else ""), other=second,
        )  # fmt: skip
        run.finish()
        compared: Run | None = None
        if other is not None and second is not None:
            compared = Run(
                second, dataset, settings, maps_of(other, None), Part(folder, "compared"),
                _show_progress("compared"), of=run,
            )  # fmt: skip
            compared.finish()
        methods = None
        if against:
            methods = compare_methods(
                run, open_network(run), against, grids=against_grids or grids, slow_grids=slow_grids
            )
        result = evaluation_of(run, compared, methods)
        _write(result, folder)
    _print(result, as_json, folder)
    ctx.exit(_exit_code(result, Demands(min_accuracy, min_localisation, max_drop)))


def _check_comparable(model: Client, other: Client) -> None:
    if model.labels != other.labels:
        raise click.UsageError("--model and --compare have different labels, so their images cannot be compared")


def _grid_maps(
    client: Client, settings: Settings, out: Path, grid_model: str | None, options: dict[str, Any], stack: ExitStack
) -> GridMaps | None:
    """How grids are explained; None if localisation is not measured."""
    if "localisation" not in settings.measures:
        return None
    from bcos_sdk import Client
    from bcos_sdk.evaluation import NetworkMaps, WindowMaps
    from bcos_sdk.evaluation.grid_network import can_be_exported, check_grid_bundle, export_at_grid_size

    n, corrected = settings.cells, settings.mean_corrected
    device = client.device
    if grid_model is not None:
        larger = stack.enter_context(Client(grid_model, device=device, **options))
        check_grid_bundle(larger.manifest, client.manifest, n)
        return NetworkMaps(larger, n, mean_corrected=corrected)
    if settings.grid_mode == "windows" or (settings.grid_mode == "auto" and not can_be_exported(client.manifest)):
        print_message("grids are explained by sliding windows; see --grid-mode")
        return WindowMaps(client, n, mean_corrected=corrected)
    folder = out / f"grid-network-{client.manifest.digest[:16]}-{n}"
    if not folder.exists():
        print_message(f"exporting {client.manifest.model.name} at {n} times its input size for the grids")
    bundle = export_at_grid_size(client.manifest, n, folder)
    larger = stack.enter_context(Client(bundle.path, device=device, **options))
    return NetworkMaps(larger, n, mean_corrected=corrected)


def _show_progress(label: str) -> Any:
    @contextmanager
    def show(measure: str, total: int, done: int) -> Iterator[Callable[[], None]]:
        with Progress(total, "items", label=f"{label} {measure}".strip()) as progress:
            progress.start_at(done)
            yield progress.step

    return show


def _write(result: Evaluation, folder: EvaluationFolder) -> None:
    from bcos_sdk.cli.evaluate._page import write_page

    with output_file(folder.result) as partial:
        partial.write_text(result.to_json(), "utf-8")
    write_page(result, folder.page)


def _print(result: Evaluation, as_json: bool, folder: EvaluationFolder) -> None:
    from bcos_sdk.cli.evaluate._table import against_rows, difference_rows, figure_rows

    for one in (result.model, result.other):
        failures = [] if one is None else [failure for part in one.failures.values() for failure in part]
        for failure in failures[:_MOST_PRINTED]:
            print_error(failure.code, f"{failure.source}: {failure.message}")
        if len(failures) > _MOST_PRINTED:
            print_message(f"{len(failures) - _MOST_PRINTED:,} more failed; {folder.result} lists all")
    if as_json:
        print_json(result.to_json().rstrip("\n"))
    else:
        print_lines(*columns(("figure", "value", "items"), figure_rows(result)))
        if result.differences:
            header = ("model − compared", "model", "compared", "difference", "95 % interval", "items that differ")
            print_lines("", *columns(header, difference_rows(result.differences)))
        if rows := against_rows(result):
            print_lines("", *columns(("method", "score %", "not smoothed %", "grids", "ms"), rows))
    print_message(f"written to {folder.path}")


def _exit_code(result: Evaluation, demands: Demands) -> int:
    missed = demands.missed(result)
    for sentence in missed:
        print_message(sentence, label="not met:", colour="red")
    if missed:
        return EXIT_CODE
    failed = result.model.failures or (result.other is not None and result.other.failures)
    return ImagesFailedError.exit_code if failed else 0
