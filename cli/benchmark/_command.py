"""`bcos-sdk benchmark`: how fast models run here, beside the reference package and conventional networks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, get_args

import click

from bcos_sdk._extras import installed_version
from bcos_sdk._files import atomic_write
from bcos_sdk.cli._tables import columns, pairs
from bcos_sdk.errors import OutputError

__all__ = ["benchmark"]

_FILE = click.Path(path_type=Path, dir_okay=False)


def _numbers(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, ...]:
    """Batch sizes, separated by commas."""
    parts = _parts(text)
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is no list of batch sizes: write 1,8")
    return tuple(sorted({int(part) for part in parts}))


def _comparisons(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    from bcos_sdk.cli.benchmark._report import Comparison

    parts = () if text == "none" else _parts(text)
    if unknown := [part for part in parts if part not in get_args(Comparison)]:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(get_args(Comparison))}, or none")
    return parts


def _devices(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ("cpu", "openvino") if installed_version("openvino") else ("cpu",)
    if not _parts(text):
        raise click.BadParameter("name at least one device")
    return _parts(text)


def _plot_file(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    from bcos_sdk.cli.benchmark._plot import FORMATS

    if path is not None and path.suffix.lower() not in FORMATS:
        raise click.BadParameter(f"{path.name} ends with none of {', '.join(FORMATS)}")
    return path


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--batch", "batches", default="1,8", show_default=True, callback=_numbers, help="Batch sizes.")
@click.option(
    "--against",
    default="reference,conventional",
    show_default=True,
    callback=_comparisons,
    help="What to compare with; none for nothing.",
)
@click.option("--device", "devices", callback=_devices, help="Devices; default: cpu, and openvino if it is installed.")
@click.option("--threads", type=click.IntRange(1), help="Threads of all that is timed; default: one per core.")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="How often each is timed.")
@click.option(
    "--folder-images",
    default=500,
    show_default=True,
    type=click.IntRange(0),
    help="JPEGs to run through `predict`; 0 leaves that out.",
)
@click.option("--json", "json_file", type=_FILE, help="Write the report to this file.")
@click.option("--plot", "plot_file", type=_FILE, callback=_plot_file, help="Draw it to this file, .png or .svg.")
def benchmark(
    models: tuple[str, ...],
    batches: tuple[int, ...],
    against: Any,
    devices: tuple[str, ...],
    threads: int | None,
    rounds: int,
    folder_images: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Time MODEL, in turns with the reference package and with a conventional network of the same architecture.

    MODEL is a name of the registry, exported here with random weights (how long it takes does not depend on them), or
    the folder or the stored name of an export. Times are per image, in one process, with the threads of all pinned.
    Pictures and five classes at once are timed at batch 1. Peak memory, the cold start and a folder of JPEGs, from
    decoding to the written result, are measured in processes of their own.

    \b
    Examples:
      bcos-sdk benchmark resnet50
      bcos-sdk benchmark resnet50 densenet121 --batch 1,8,32 --threads 4 --json speed.json --plot speed.png
      bcos-sdk benchmark out/resnet50 --against none --device cpu
    """
    from bcos_sdk.cli.benchmark import Options, run_benchmark
    from bcos_sdk.cli.benchmark._plot import check_plot, draw_plot

    if plot_file is not None:
        check_plot()
    options = Options(
        models=models,
        threads=threads or os.cpu_count() or 1,
        batches=batches,
        against=against,
        devices=devices,
        rounds=rounds,
        folder_images=folder_images,
    )
    for file in (json_file, plot_file):
        if file is not None and not file.resolve().parent.is_dir():
            raise OutputError(f"there is no folder for {file}", source=str(file))
    began = time.monotonic()

    def progress(stage: str) -> None:
        click.echo(f"[{time.monotonic() - began:6.1f} s] {stage}", err=True)

    def keep(report: Any) -> None:
        if json_file is not None:
            _write(json_file, report.to_json())

    report = run_benchmark(options, progress, keep)
    _show(report)
    if plot_file is not None:
        draw_plot(report, plot_file)


def _show(report: Any) -> None:
    from bcos_sdk.cli.benchmark import _tables as tables

    click.echo(pairs(tables.machine_rows(report)))
    for model in report.models:
        click.echo(f"\n{tables.model_title(model)}")
        click.echo(columns(*_upper(tables.timing_table(model))))
        for table in (tables.ratio_table(model), tables.process_table(model)):
            click.echo("\n" + columns(*_upper(table)))
        for note in model.notes:
            click.echo(note)
    click.echo("\n" + columns(*_upper(tables.goal_table(report, measured_only=True))))


def _upper(table: tuple[list[str], list[list[str]]]) -> tuple[list[str], list[list[str]]]:
    header, rows = table
    return [title.upper() for title in header], rows


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as aside:
            aside.write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", source=str(path)) from error
