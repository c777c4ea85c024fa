"""`bcos-sdk models list`, `remove` and `labels`: the exports in the store, and the names of classes as text."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bcos_sdk._paths import store_dir
from bcos_sdk.bundle import (
    StoredBundle,
    find_folder,
    has_manifest,
    is_name,
    list_store,
    read_manifest,
    remove_stored,
    stored_bundles,
)
from bcos_sdk.cli._common import columns, json_option, registry_option
from bcos_sdk.cli._terminal import confirm, count_of, print_json, print_lines, print_message
from bcos_sdk.errors import InputError, UnknownModelError
from bcos_sdk.registry import model_registry

__all__ = ["labels", "list_exports", "remove"]


@click.command()
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
    print_lines(*found)
    print_message(f"{len(found)} labels of {origin}")


def _labels_of(name: str, registries: tuple[Path, ...]) -> tuple[tuple[str, ...] | None, str]:
    registry = model_registry(*registries)
    if name in stored_bundles() or (has_manifest(Path(name)) and not (is_name(name) and name in registry)):
        folder = find_folder(name)
        return read_manifest(folder).labels, str(folder)
    return registry.find(name).class_names, f"{name} in the registry"


@click.command(name="list")
@json_option
def list_exports(as_json: bool) -> None:
    """List the exports in the store: what `predict --model NAME` finds by name."""
    found = list_store()
    if as_json:
        print_json(json.dumps([_stored_record(entry) for entry in found], indent=2))
        return
    if found:
        header = ["NAME", "MODEL", "CLASSES", "INPUT", "PRECISION", "MB", "EXPORTED"]
        print_lines(*columns(header, [_stored_row(entry) for entry in found]))
    for entry in found:
        if entry.problem:
            print_message(f"{entry.name}: {entry.problem}")
    print_message(f"{count_of(len(found), 'export')} in {store_dir()}")


@click.command()
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
        confirm(f"Remove {', '.join(chosen)} ({size:.1f} MB) from {store_dir()}?")
    for name in chosen:
        remove_stored(name)
        print_lines(f"removed {stored[name].path}")


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
        f"{manifest.input.size[0]}×{manifest.input.size[1]}",
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
