"""`bcos-sdk models`: the models of the registry, and the exports in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import click
from click.core import ParameterSource

from bcos_sdk._paths import store_dir
from bcos_sdk.bundle import StoredBundle, has_manifest, list_store, read_manifest, remove_stored, stored_bundles
from bcos_sdk.cli._common import columns, json_option, pairs, registry_option
from bcos_sdk.errors import InputError, UnknownModelError
from bcos_sdk.registry import LabelSet, ModelSpec, model_registry

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
        click.echo(json.dumps([spec.model_dump(mode="json") for spec in chosen], indent=2))
        return
    if chosen:
        click.echo(_table(chosen))
    click.echo(f"{len(chosen)} of {len(registry)} models", err=True)


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
    click.echo(spec.model_dump_json(indent=2) if as_json else pairs(_details(spec)))


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

    click.echo(download_weights(spec, folder=folder))


@models.command()
@click.argument("name")
@registry_option
def labels(name: str, registries: tuple[Path, ...]) -> None:
    """Print the class names of a stored export or of a registry model, one per line.

    The output is a file that `export --labels` takes. If the store and the registry both have the name, the export in
    the store is meant, as in `predict --model`.
    """
    found, origin = _labels_of(name, registries)
    if found is None:
        raise InputError(f"the classes of {name} have no names", source=name, hint="Export it with --labels FILE.")
    for label in found:
        click.echo(label)
    click.echo(f"{len(found)} labels of {origin}", err=True)


def _labels_of(name: str, registries: tuple[Path, ...]) -> tuple[tuple[str, ...] | None, str]:
    if has_manifest(Path(name)) or name in stored_bundles():
        folder = Path(name) if has_manifest(Path(name)) else store_dir() / name
        return read_manifest(folder).labels, str(folder)
    return model_registry(*registries).find(name).class_names, f"{name} in the registry"


@models.command(name="list")
@json_option
def list_exports(as_json: bool) -> None:
    """List the exports in the store: what `predict --model NAME` finds by name."""
    found = list_store()
    if as_json:
        click.echo(json.dumps([_stored_record(entry) for entry in found], indent=2))
        return
    if found:
        header = ["NAME", "MODEL", "CLASSES", "INPUT", "PRECISION", "MB", "EXPORTED"]
        click.echo(columns(header, [_stored_row(entry) for entry in found]))
    for entry in found:
        if entry.problem:
            click.echo(f"{entry.name}: {entry.problem}", err=True)
    click.echo(f"{len(found)} exports in {store_dir()}", err=True)


@models.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(names: tuple[str, ...], yes: bool) -> None:
    """Remove exports from the store. Bundles in other folders and the registry are not touched."""
    stored = {entry.name: entry for entry in list_store()}
    if unknown := [name for name in names if name not in stored]:
        raise UnknownModelError(
            f"the store has no export {', '.join(map(repr, unknown))}. Nothing was removed",
            source=unknown[0],
            hint=f"`bcos-sdk models list` lists the exports in {store_dir()}.",
        )
    chosen = list(dict.fromkeys(names))
    if not yes:
        size = sum(stored[name].size for name in chosen) / 1e6
        click.confirm(f"Remove {', '.join(chosen)} ({size:.1f} MB) from {store_dir()}?", abort=True, err=True)
    for name in chosen:
        remove_stored(name)
        click.echo(f"removed {stored[name].path}")


def _stored_row(entry: StoredBundle) -> list[str]:
    written = entry.written.astimezone().strftime("%Y-%m-%d %H:%M")
    size = f"{entry.size / 1e6:.1f}"
    manifest = entry.manifest
    if manifest is None:
        return [entry.name, "unreadable", "-", "-", "-", size, written]
    return [
        entry.name,
        manifest.model.name,
        str(manifest.classes),
        _by(manifest.input.size),
        manifest.precision,
        size,
        written,
    ]


def _stored_record(entry: StoredBundle) -> dict[str, object]:
    manifest = entry.manifest
    return {
        "name": entry.name,
        "path": str(entry.path),
        "model": manifest and manifest.model.name,
        "classes": manifest and manifest.classes,
        "labels": manifest and manifest.labels is not None,
        "input_size": manifest and manifest.input.size,
        "precision": manifest and manifest.precision,
        "bytes": entry.size,
        "exported": entry.written.isoformat(timespec="seconds"),
        "problem": entry.problem,
    }


def _table(specs: Sequence[ModelSpec]) -> str:
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
        rows = [("  sha256", f"{published.sha256_prefix}…"), ("  licence", published.licence)]
        return [("weights", published.url), *rows]
    if spec.packaged:
        return [("weights", "built in"), ("  licence", spec.packaged.licence)]
    return [("weights", "the registry has no weights for this model")]


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
        ("localisation %", _figure(figures.localisation)),
        ("note", figures.note or "-"),
        *_weights_rows(spec),
    ]


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
