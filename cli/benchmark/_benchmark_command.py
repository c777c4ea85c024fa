"""`bcos-sdk benchmark`: measure models on this machine, and compare them with other implementations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import click

from bcos_sdk._extras import installed_version
from bcos_sdk._files import output_file
from bcos_sdk.cli._common import columns, pairs, print_stages, registry_option, split_list
from bcos_sdk.cli._terminal import print_lines
from bcos_sdk.cli.benchmark import _tables as tables
from bcos_sdk.cli.benchmark._measurements import Comparison, Report
from bcos_sdk.cli.benchmark._plot import FORMATS, check_plot, draw_plot
from bcos_sdk.cli.benchmark._run import Options, run_benchmark
from bcos_sdk.errors import OutputError
from bcos_sdk.registry import model_registry

__all__ = ["benchmark"]

_FILE = click.Path(path_type=Path, dir_okay=False)


def _batches(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, ...]:
    parts = split_list(text)
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of batch sizes: write for example 1,8")
    return tuple(sorted({int(part) for part in parts}))


def _comparisons(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    parts = () if text == "none" else split_list(text)
    if unknown := [part for part in parts if part not in get_args(Comparison)]:
        raise click.BadParameter(
            f"unknown comparison {', '.join(unknown)}: choose from {', '.join(get_args(Comparison))}, or none"
        )
    return parts


def _devices(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ("cpu", "openvino") if installed_version("openvino") else ("cpu",)
    if not split_list(text):
        raise click.BadParameter("name at least one device, for example cpu")
    return split_list(text)


def _plot_file(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in FORMATS:
        raise click.BadParameter(f"{path.name} must end with {' or '.join(FORMATS)}")
    return path


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--batch", "batches", default="1,8", show_default=True, callback=_batches, help="Batch sizes.")
@click.option(
    "--against",
    default="reference,conventional",
    show_default=True,
    callback=_comparisons,
    help="What to compare with: reference, conventional, torch, compiled (torch.compile), or none.",
)
@click.option("--device", "devices", callback=_devices, help="Devices; default: cpu, and openvino if it is installed.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads of everything measured; default: one per core.")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="How often each case is timed.")
@click.option(
    "--folder-images",
    default=500,
    show_default=True,
    type=click.IntRange(0),
    help="Number of JPEGs to run through `predict`; 0 skips this measurement.",
)
@click.option(
    "--callers",
    default=32,
    show_default=True,
    type=click.IntRange(0),
    help="Number of threads that call one client at once; 0 skips the measurement of a stream and of callers.",
)
@registry_option
@click.option("--json", "json_file", type=_FILE, help="Write the report to this file.")
@click.option("--plot", "plot_file", type=_FILE, callback=_plot_file, help="Draw a plot to this .png or .svg file.")
def benchmark(
    models: tuple[str, ...],
    batches: tuple[int, ...],
    against: Any,
    devices: tuple[str, ...],
    threads: int | None,
    rounds: int,
    folder_images: int,
    callers: int,
    registries: tuple[Path, ...],
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Measure each MODEL, and compare it with the reference package and a conventional network.

    MODEL is a registry name, a bundle's folder or the stored name of an export. A registry model is exported with
    random weights: run time does not depend on the weights. Times are per image. All cases run interleaved in one
    process, with the same number of threads. Pictures and five classes per image are timed at batch 1 only. Peak
    memory, cold start and a folder of JPEGs are measured in new processes. With a GPU among the devices, torch runs
    on it.

    \b
    Examples:
      bcos-sdk benchmark resnet50
      bcos-sdk benchmark resnet50 densenet121 --batch 1,8,32 --threads 4 --json speed.json --plot speed.png
      bcos-sdk benchmark out/resnet50 --against none --device cpu
      bcos-sdk benchmark resnet50 --device tensorrt --against conventional,torch,compiled --folder-images 0
    """
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
        callers=callers,
        registry=model_registry(*registries),
    )
    for file in (json_file, plot_file):
        if file is not None and not file.resolve().parent.is_dir():
            raise OutputError(
                f"cannot write {file}: its folder does not exist", source=str(file), hint="Create the folder first."
            )

    def keep(report: Report) -> None:
        if json_file is not None:
            with output_file(json_file) as partial:
                partial.write_text(report.to_json(), "utf-8")

    report = run_benchmark(options, print_stages(), keep)
    _print_report(report)
    if plot_file is not None:
        draw_plot(report, plot_file)


def _print_report(report: Report) -> None:
    print_lines(*pairs(tables.machine_rows(report)))
    for model in report.models:
        print_lines("", tables.model_title(model), *_lines(tables.timing_table(model)))
        for table in (tables.ratio_table(model), tables.process_table(model), tables.calls_table(model)):
            if table[1]:
                print_lines("", *_lines(table))
        print_lines(*model.notes)
    print_lines("", *_lines(tables.goal_table(report, measured_only=True)))


def _lines(table: tables.Table) -> list[str]:
    header, rows = table
    return columns([title.upper() for title in header], rows)
