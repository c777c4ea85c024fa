"""`bcos-sdk models`: the models of the registry, and the exports in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import click
from click.core import ParameterSource

from bcos_sdk.cli._common import columns, json_option, pairs, registry_option
from bcos_sdk.cli._store_commands import labels, list_exports, remove
from bcos_sdk.cli._terminal import print_json, print_lines, print_message
from bcos_sdk.registry import LabelSet, ModelSpec, WeightsSource, model_registry
from bcos_sdk.weights import known_sha256

__all__ = ["models"]


@click.group(invoke_without_command=True)
@click.option("--match", metavar="PATTERN", help="Only names that match the pattern, e.g. 'resnet*'.")
@click.option("--family", metavar="FAMILY", help="Only this architecture family, e.g. resnet.")
@click.option("--dataset", type=click.Choice(get_args(LabelSet)), help="Only models with these labels.")
@click.option("--published", is_flag=True, help="Only models with published weights.")
@registry_option
@json_option
@click.pass_context
def models(
    ctx: click.Context,
    match: str | None,
    family: str | None,
    dataset: str | None,
    published: bool,
    registries: tuple[Path, ...],
    as_json: bool,
) -> None:
    """List the models that can be built by name: the registry. `models list` lists the exports in the store.

    \b
    Examples:
      bcos-sdk models --published
      bcos-sdk models --family vit --json
      bcos-sdk models --match 'cifar10_resnet20*'
      bcos-sdk models show resnet152
      bcos-sdk models --registry mine.yaml --match 'my*'
      bcos-sdk models labels resnet152 > labels.txt
      bcos-sdk models list
      bcos-sdk models remove resnet18
    """
    if ctx.invoked_subcommand is not None:
        _refuse_list_options(ctx, ctx.invoked_subcommand)
        return
    registry = model_registry(*registries)
    families = sorted({spec.family for spec in registry.values()})
    if family is not None and family not in families:
        raise click.BadParameter(f"unknown family {family!r}: choose from {', '.join(families)}", param_hint="--family")
    chosen = [
        spec
        for name, spec in registry.items()
        if (match is None or fnmatchcase(name, match))
        and family in (None, spec.family)
        and dataset in (None, spec.dataset)
        and (spec.published_weights is not None or not published)
    ]
    if as_json:
        print_json(json.dumps([spec.model_dump(mode="json") for spec in chosen], indent=2))
        return
    if chosen:
        print_lines(*_table(chosen))
    print_message(f"{len(chosen)} of {len(registry)} models")


def _refuse_list_options(ctx: click.Context, subcommand: str) -> None:
    """Raise if an option of the list stands before a subcommand, which would ignore it."""
    given = [
        option.opts[0]
        for option in ctx.command.params
        if option.name and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} before '{subcommand}' has no effect. "
            f"Options of '{subcommand}' follow it: see 'bcos-sdk models {subcommand} --help'"
        )


@models.command()
@click.argument("name")
@registry_option
@json_option
def show(name: str, registries: tuple[Path, ...], as_json: bool) -> None:
    """Print the registry entry of one model."""
    spec = model_registry(*registries).find(name)
    if as_json:
        print_json(spec.model_dump_json(indent=2))
    else:
        print_lines(*pairs(_details(spec)))


@models.command()
@click.argument("name")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to save to; default: the cache.",
)
@registry_option
def download(name: str, folder: Path | None, registries: tuple[Path, ...]) -> None:
    """Download the published weights of a model and print the path of the file.

    Weights in the cache are not downloaded again. Run this once with network access, for example when you build a
    container. Later runs need no network.
    """
    spec = model_registry(*registries).find(name)
    from bcos_sdk.weights import download_weights

    print_lines(str(download_weights(spec, folder=folder)))


def _table(specs: Sequence[ModelSpec]) -> list[str]:
    header = ["NAME", "FAMILY", "DATA SET", "INPUT", "PARAMETERS", "TOP-1 %", "LOCALISATION %", "WEIGHTS"]
    rows = [_row(spec) for spec in specs]
    if all(spec.published.localisation is None for spec in specs):
        empty = header.index("LOCALISATION %")
        for line in (header, *rows):
            del line[empty]
    return columns(header, rows)


def _row(spec: ModelSpec) -> list[str]:
    figures = spec.published
    return [
        spec.name,
        spec.family,
        spec.dataset,
        _by(spec.input.size),
        f"{figures.parameters / 1e6:.1f} M" if figures.parameters else "-",
        _figure(figures.top1),
        _figure(figures.localisation),
        _weights_kind(spec),
    ]


def _weights_kind(spec: ModelSpec) -> str:
    if spec.local_weights:
        return "own file"
    return "published" if spec.published_weights else "built in" if spec.packaged else "-"


def _weights_rows(spec: ModelSpec) -> list[tuple[str, str]]:
    if local := spec.local_weights:
        return [("weights", str(local.file)), *([("  sha256", local.sha256)] if local.sha256 else [])]
    if published := spec.published_weights:
        size = [("  size", f"{published.size:,} bytes")] if published.size else []
        return [
            ("weights", published.url),
            ("  sha256", _sha256_text(published)),
            *size,
            ("  licence", published.licence),
        ]
    if spec.packaged:
        return [("weights", "built in"), ("  licence", spec.packaged.licence)]
    return [("weights", "the registry has no weights for this model")]


def _sha256_text(source: WeightsSource) -> str:
    known = known_sha256(source)
    if known is None:
        return f"{source.sha256_prefix}…"
    stated = f" (recorded at first use; the publisher states {source.sha256_prefix}…)"
    return known + ("" if source.full_sha256 else stated)


def _details(spec: ModelSpec) -> list[tuple[str, str]]:
    figures, given, names = spec.published, spec.input, spec.class_names or ()
    labels = f"{spec.dataset}: {', '.join(names[:2])}{', …' if len(names) > 2 else ''}" if names else "none"
    crop = f"centre crop to {_by(given.crop)}" if given.crop else "no crop"
    resize = f"shorter side to {given.resize} ({given.interpolation})" if given.resize else "no resize"
    architecture = spec.architecture.model_dump(mode="json", exclude={"family"}, exclude_none=True)
    return [
        ("name", spec.name),
        ("description", spec.description),
        ("family", spec.family),
        *((f"  {key}", json.dumps(value)) for key, value in architecture.items()),
        ("input", f"{_by(given.size)}, {given.channels}"),
        ("preprocessing", f"{resize}, {crop}"),
        ("labels", labels),
        ("parameters", f"{figures.parameters:,}" if figures.parameters else "-"),
        ("top-1 / top-5 %", f"{_figure(figures.top1)} / {_figure(figures.top5)}"),
        ("localisation %", _localisation(figures.localisation)),
        ("note", figures.note or "-"),
        *_weights_rows(spec),
    ]


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _localisation(score: float | None) -> str:
    """The score with its source."""
    return "-" if score is None else f"{score:.1f} (grid pointing game, Böhle et al., TPAMI 2024)"


for subcommand in (labels, list_exports, remove):
    models.add_command(subcommand)
